package route

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// The requests of TestNext.
const (
	listPods    = "GET /api/v1/pods"
	getPod      = "GET /api/v1/namespaces/a/pods/p"
	anyPods     = "GET /api/v1/pods?resourceVersion=0"
	watchPods   = "GET /api/v1/pods?watch=1"
	resumePods  = "GET /api/v1/pods?watch=1&resourceVersion=5"
	queryPods   = "GET /api/v1/pods?sortBy=metadata.name"
	shardOfPods = "GET /api/v1/pods?shardSelector=x"
	createPod   = "POST /api/v1/namespaces/a/pods"
	selfReview  = "POST " + policy.AccessReviewPath
	discovery   = "GET /apis"
)

// newFacts returns what is known of a request: the client may make it, no budget is exhausted, the
// cache has a collection, and the response is in JSON.
func newFacts(line string, changes ...func(*Facts)) *Facts {
	method, target, _ := strings.Cut(line, " ")
	path, rawQuery, _ := strings.Cut(target, "?")
	r := &api.Request{Method: method, Path: path, RawPath: path, RawQuery: rawQuery, Proto: "HTTP/1.1"}
	f := &Facts{
		Request: r, Info: r.Info(), Subject: &authn.Subject{User: new(authn.User)},
		Settings: policy.Settings{Mode: policy.ModeStrict}, Budgets: exhausted(),
		Budget: Yes, Permission: Yes, Reading: &Reading{Collection: Yes, OfflineTTL: time.Hour},
	}
	f.Query.Options = f.Info.Options
	f.Query.Resource = &source.Resource{GroupVersionResource: f.resource(), Namespaced: true, Custom: true, Schema: object.SchemaFor(f.resource())}
	f.Query.Rep.Encoding = api.JSON
	for _, change := range changes {
		change(f)
	}
	return f
}

// exhausted returns a Spending whose budget is exhausted, for the text of the rejection.
func exhausted() policy.ClientBudgets {
	rules := []policy.Rule{{Settings: policy.Settings{UpstreamRequestsPerSecond: 1}}}
	return policy.ClientBudgets{User: "jane", Exceeded: policy.Compile(policy.Policy{Rules: rules}, nil).Budgets()[0].Requests, Wait: time.Second}
}

// budget and the functions below set facts that several requests share.
func budget(s State) func(*Facts)     { return func(f *Facts) { f.Budget = s } }
func permission(s State) func(*Facts) { return func(f *Facts) { f.Permission = s } }
func collection(s State) func(*Facts) { return func(f *Facts) { f.Collection = s } }
func current(s State) func(*Facts)    { return func(f *Facts) { f.Current = s } }
func fresh(s State) func(*Facts)      { return func(f *Facts) { f.Fresh = s } }
func visibility(s State) func(*Facts) { return func(f *Facts) { f.Visible = s } }

func unfit(w reason.Forward) func(*Facts) { return func(f *Facts) { f.Unqualified = w } }

func session(f *Facts)      { f.Settings.Mode = policy.ModeSession }
func staleAllowed(f *Facts) { f.StaleAllowed = true }
func cacheRead(f *Facts)    { f.Read = true }
func cacheFailed(f *Facts)  { f.CacheErr, f.CacheWhy = errors.New("gone"), reason.VersionGone }
func cacheBehind(f *Facts) {
	f.CacheErr, f.CacheWhy = &store.TooLargeError{RV: 9, Current: 5}, reason.VersionAhead
}
func allowsOffline(f *Facts)  { f.Settings.Offline = policy.Yes }
func offlineReview(f *Facts)  { f.Decision.Offline = true }
func unconfirmed(f *Facts)    { f.Unconfirmed = true }
func tooOld(f *Facts)         { f.Unreachable, f.Age = true, 2*time.Hour }
func redacted(f *Facts)       { f.Redacted, f.Query.Rep.Redacted = true, true }
func impersonating(f *Facts)  { f.Subject.UpstreamDecides = true }
func immediate(f *Facts)      { f.Immediate = true }
func parsed(f *Facts)         { f.Parsed = true }
func parsedQuery(f *Facts)    { f.Parsed, f.Query.Query = true, new(query.Query) }
func badParameter(f *Facts)   { f.Parsed, f.ParameterErr = true, errors.New("bad parameter") }
func badPace(f *Facts)        { f.PaceErr = errors.New("bad pace") }
func showsVisible(f *Facts)   { f.Permission, f.Settings.VisibleLists = No, policy.Yes }
func someVisible(f *Facts)    { f.Visible, f.Query.Visible = Yes, new(visible.Set) }
func notRevalidated(f *Facts) { f.NotRevalidated = true }
func notCoalesced(f *Facts)   { f.NotCoalesced = reason.TooLargeToShare }
func rowsAlone(f *Facts) {
	f.Query.Rep.Transform, f.Query.Rep.IncludeObject = api.Table, api.IncludeNone
}
func upgrades(f *Facts)       { f.Request.Upgrade = "websocket" }
func knowsDocuments(f *Facts) { f.Documents = Documents{true, true, true, true} }
func noDiscovery(f *Facts)    { f.Documents.Clear(Discovery) }
func serviceOfType(f *Facts) {
	f.Query.Resource.Schema = object.SchemaFor(f.resource())
	f.Query.Filter = new(object.Filter)
}

// all are facts that hold together.
type all []func(*Facts)

// TestNext has a request for each action, and for each pair of conditions whose order matters.
func TestNext(t *testing.T) {
	const typedServices = "GET /api/v1/services?resourceVersion=0&fieldSelector=spec.type%3DClusterIP"
	seen := make(map[Action]bool)
	for _, c := range []struct {
		name, line string
		facts      all
		want       Decision // but for Err
		code       int32    // of Err, 0 without one
	}{
		// Requests that read no objects.
		{"write", createPod, nil, Decision{Action: Forward}, 0},
		{"write, budget unknown", createPod, all{budget(Unknown)}, Decision{Action: Charge}, 0},
		{"write, budget exhausted", createPod, all{budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"self-review", selfReview, all{knowsDocuments}, Decision{Action: SelfReview}, 0},
		{"discovery offline", discovery, all{func(f *Facts) { f.Documents = Documents{OfflineDiscovery: true, Discovery: true} }}, Decision{Action: OfflineDiscovery}, 0},
		{"discovery", discovery, all{func(f *Facts) { f.Documents = Documents{Discovery: true, OpenAPI: true} }}, Decision{Action: Discovery}, 0},
		{"discovery without response", discovery, all{func(f *Facts) { f.Documents.Discovery = true }, noDiscovery}, Decision{Action: Forward}, 0},
		{"OpenAPI", "GET /openapi/v2", all{func(f *Facts) { f.Documents.OpenAPI = true }}, Decision{Action: OpenAPI}, 0},
		{"redacted, no objects", discovery, all{redacted}, Decision{Action: Forward}, 0},

		// Reads that the cache cannot serve.
		{"unqualified", listPods, all{unfit(reason.Representation)}, Decision{Action: Forward, Why: reason.Representation}, 0},
		{"unqualified, permission unknown", listPods, all{unfit(reason.Scope), permission(Unknown)}, Decision{Action: Forward, Why: reason.Scope}, 0},
		{"unqualified, budget exhausted", listPods, all{unfit(reason.Scope), budget(No), staleAllowed}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"unknown resource", listPods, all{unfit(reason.UnknownResource), func(f *Facts) { f.Documents.Discovery = true }}, Decision{Action: Discovery, Why: reason.UnknownResource}, 0},
		{"unknown resource, no discovery", listPods, all{unfit(reason.UnknownResource)}, Decision{Action: Forward, Why: reason.UnknownResource}, 0},
		{"redacted, unqualified", listPods, all{redacted, unfit(reason.Scope)}, Decision{Action: Forward, Why: reason.Scope}, 0},
		{"redacted, upgrade", watchPods, all{redacted, upgrades, unfit(reason.Upgraded)}, Decision{Action: Reject, Rejection: reason.Redacted}, 403},
		{"redacted, snapshot", "GET " + api.SnapshotPath, all{redacted}, Decision{Action: Reject, Rejection: reason.Redacted}, 403},
		{"redacted, no JSON", listPods, all{redacted, unfit(reason.Representation), func(f *Facts) { f.Request.Header.Add("Accept", "application/vnd.kubernetes.protobuf") }}, Decision{Action: Reject, Rejection: reason.Redacted}, 406},
		{"redacted shard, no JSON", shardOfPods, all{redacted, unfit(reason.Representation), func(f *Facts) { f.Request.Header.Add("Accept", "application/vnd.kubernetes.protobuf") }}, Decision{Action: Reject, Rejection: reason.Redacted}, 406},
		{"redacted shard, upgrade", shardOfPods + "&watch=1", all{redacted, upgrades, unfit(reason.Upgraded)}, Decision{Action: Reject, Rejection: reason.Redacted}, 403},
		{"redacted, budget exhausted", watchPods, all{redacted, upgrades, unfit(reason.Upgraded), budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"release unknown", typedServices, all{serviceOfType}, Decision{Action: FindRelease}, 0},
		{"release too old", typedServices, all{serviceOfType, func(f *Facts) { f.Release, f.ReleaseKnown = 30, true }}, Decision{Action: Forward, Why: reason.InvalidSelector}, 0},
		{"release new enough", typedServices, all{serviceOfType, func(f *Facts) { f.Release, f.ReleaseKnown = 31, true }}, Decision{Action: ReadCache}, 0},

		// Permission.
		{"permission unknown", anyPods, all{permission(Unknown), collection(Unknown)}, Decision{Action: Authorize}, 0},
		{"forbidden", anyPods, all{permission(No)}, Decision{Action: Reject, Rejection: reason.Forbidden}, 403},
		{"visible unknown", anyPods, all{showsVisible}, Decision{Action: FindNamespaces}, 0},
		{"visible, one object", getPod, all{showsVisible}, Decision{Action: Reject, Rejection: reason.Forbidden}, 403},
		{"visible, none", anyPods, all{showsVisible, visibility(No)}, Decision{Action: Reject, Rejection: reason.Forbidden}, 403},
		{"visible, some", anyPods, all{showsVisible, someVisible}, Decision{Action: ReadCache}, 0},
		{"visible, some, strict", listPods, all{showsVisible, someVisible, current(No)}, Decision{Action: CheckFreshness}, 0},
		{"visible, cache fails", anyPods, all{showsVisible, someVisible, cacheFailed}, Decision{Action: Reject, Rejection: reason.VisibleUnserved}, 410},
		{"visible, no collection", anyPods, all{showsVisible, someVisible, collection(No), func(f *Facts) { f.Missing = reason.CacheUnavailable }}, Decision{Action: Reject, Rejection: reason.VisibleUnserved}, 503},
		{"visible, unserved", anyPods, all{showsVisible, someVisible, collection(No), func(f *Facts) { f.Missing = reason.Unservable }}, Decision{Action: Reject, Rejection: reason.VisibleUnserved}, 403},
		{"offline review, not allowed", anyPods, all{offlineReview}, Decision{Action: Reject, Rejection: reason.OfflineDenied}, 503},
		{"offline review, forbidden", anyPods, all{offlineReview, permission(No)}, Decision{Action: Reject, Rejection: reason.Forbidden}, 403},
		{"offline review, allowed", anyPods, all{offlineReview, allowsOffline}, Decision{Action: ReadCache}, 0},

		// Shards and queries.
		{"shard, permission unknown", shardOfPods, all{permission(Unknown)}, Decision{Action: Authorize}, 0},
		{"shard, not parsed", shardOfPods, nil, Decision{Action: ParseParameters}, 0},
		{"shard, bad selector", shardOfPods, all{badParameter}, Decision{Action: Reject}, 500},
		{"shard", shardOfPods, all{parsed, current(Yes)}, Decision{Action: ReadCache}, 0},
		{"shard, cache too old", shardOfPods, all{parsed, cacheBehind}, Decision{Action: ForwardShard, Why: reason.VersionAhead}, 504},
		{"shard, budget unknown", shardOfPods, all{parsed, cacheBehind, budget(Unknown)}, Decision{Action: Charge}, 0},
		{"shard, budget exhausted", shardOfPods, all{parsed, cacheBehind, budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"shard, deletion", "DELETE /api/v1/namespaces/a/pods?shardSelector=x", nil, Decision{Action: Reject, Rejection: reason.ShardUnknown}, 400},
		{"query, not parsed", queryPods, nil, Decision{Action: ParseParameters}, 0},
		{"query", queryPods, all{parsedQuery, current(Yes)}, Decision{Action: ReadCache}, 0},
		{"query, proven", queryPods, all{parsedQuery, current(No), fresh(Yes)}, Decision{Action: ReadCache}, 0},
		{"query, not proven", queryPods, all{parsedQuery, current(No), fresh(No)}, Decision{Action: Reject, Rejection: reason.QueryUnserved}, 503},
		{"query, watch", "GET /api/v1/pods?watch=1&sortBy=metadata.name", nil, Decision{Action: Reject, Rejection: reason.QueryUnserved}, 400},
		{"query, deletion", "DELETE /api/v1/namespaces/a/pods?sortBy=metadata.name", nil, Decision{Action: Reject, Rejection: reason.QueryUnserved}, 400},
		{"query, inexact", queryPods, all{unfit(reason.Inexact)}, Decision{Action: Reject, Rejection: reason.QueryUnserved}, 400},
		{"query, unqualified, permission unknown", queryPods, all{unfit(reason.Scope), permission(Unknown)}, Decision{Action: Authorize}, 0},
		{"query, unqualified, forbidden", queryPods, all{unfit(reason.Scope), permission(No)}, Decision{Action: Reject, Rejection: reason.Forbidden}, 403},
		{"query, impersonated", queryPods, all{unfit(reason.Impersonated), impersonating, permission(Unknown)}, Decision{Action: Reject, Rejection: reason.QueryUnserved}, 400},
		{"query, aggregated", queryPods, all{unfit(reason.Aggregated)}, Decision{Action: Forward, Why: reason.Aggregated}, 0},

		// Gets and lists.
		{"any version, no collection yet", anyPods, all{collection(Unknown)}, Decision{Action: FindCollection}, 0},
		{"any version, no collection", anyPods, all{collection(No), func(f *Facts) { f.Missing = reason.CacheUnavailable }}, Decision{Action: Forward, Why: reason.CacheUnavailable}, 0},
		{"any version", anyPods, all{budget(No)}, Decision{Action: ReadCache}, 0},
		{"any version, read", anyPods, all{cacheRead, budget(No)}, Decision{Action: Respond}, 0},
		{"any version, cache fails", anyPods, all{cacheFailed}, Decision{Action: Forward, Why: reason.VersionGone}, 0},
		{"next page, cache fails", "GET /api/v1/pods?limit=1&continue=x", all{cacheFailed}, Decision{Action: Revalidate}, 0},
		{"next page, cache fails, budget unknown", "GET /api/v1/pods?limit=1&continue=x", all{cacheFailed, budget(Unknown)}, Decision{Action: Charge}, 0},
		{"next page, cache fails, not revalidated", "GET /api/v1/pods?limit=1&continue=x", all{cacheFailed, notRevalidated}, Decision{Action: Forward, Why: reason.VersionGone}, 0},
		{"strict list", listPods, all{collection(Unknown)}, Decision{Action: Revalidate}, 0},
		{"strict list, not revalidated", listPods, all{notRevalidated}, Decision{Action: Coalesce}, 0},
		{"strict list, not coalesced", listPods, all{notRevalidated, notCoalesced}, Decision{Action: Forward, Why: reason.TooLargeToShare}, 0},
		{"strict list of rows", listPods, all{rowsAlone}, Decision{Action: Coalesce}, 0},
		{"strict get", getPod, nil, Decision{Action: Coalesce}, 0},
		{"strict, budget unknown", getPod, all{budget(Unknown)}, Decision{Action: Charge}, 0},
		{"strict, budget exhausted", getPod, all{budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"strict, budget exhausted, stale allowed, no collection yet", getPod, all{budget(No), staleAllowed, collection(Unknown)}, Decision{Action: FindCollection}, 0},
		{"strict, budget exhausted, stale allowed", getPod, all{budget(No), staleAllowed}, Decision{Action: ReadCache, Stale: true}, 0},
		{"strict, budget exhausted, stale read", getPod, all{budget(No), staleAllowed, cacheRead}, Decision{Action: Respond}, 0},
		{"strict, budget exhausted, stale read expired", getPod, all{budget(No), staleAllowed, cacheRead, allowsOffline, tooOld}, Decision{Action: Reject, Rejection: reason.OfflineExpired}, 503},
		{"strict, budget exhausted, stale read fails", getPod, all{budget(No), staleAllowed, cacheFailed}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"strict, redacted", getPod, all{redacted}, Decision{Action: CheckCurrent}, 0},
		{"strict, source immediate", getPod, all{immediate}, Decision{Action: CheckCurrent}, 0},
		{"session, no-cache", getPod, all{session, func(f *Facts) { f.Request.Header.Add("Cache-Control", "no-cache") }}, Decision{Action: Coalesce}, 0},
		{"session, aggregated", getPod, all{session, func(f *Facts) { f.Query.Resource.Aggregated = true }}, Decision{Action: Coalesce}, 0},
		{"session, no collection yet", getPod, all{session, collection(Unknown)}, Decision{Action: FindCollection}, 0},
		{"session, current unknown", getPod, all{session}, Decision{Action: CheckCurrent}, 0},
		{"session, current", getPod, all{session, current(Yes), budget(No)}, Decision{Action: ReadCache}, 0},
		{"session, read", getPod, all{session, cacheRead}, Decision{Action: Respond}, 0},
		{"session, not current", getPod, all{session, current(No)}, Decision{Action: Coalesce}, 0},
		{"session, not current, list", listPods, all{session, current(No)}, Decision{Action: Revalidate}, 0},
		{"session, not current, budget unknown, stale allowed", getPod, all{session, current(No), budget(Unknown), staleAllowed}, Decision{Action: Charge}, 0},
		{"session, not current, budget exhausted, stale allowed", getPod, all{session, current(No), budget(No), staleAllowed}, Decision{Action: ReadCache, Stale: true}, 0},
		{"session, not current, budget exhausted", getPod, all{session, current(No), budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"redacted, not current", getPod, all{redacted, current(No)}, Decision{Action: CheckFreshness}, 0},
		{"redacted, not current, budget exhausted", getPod, all{redacted, current(No), budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"redacted, not proven", getPod, all{redacted, current(No), fresh(No)}, Decision{Action: Forward, Why: reason.NotCurrent}, 0},

		// Age of responses.
		{"read, old, upstream responds", anyPods, all{cacheRead, func(f *Facts) { f.Age = 2 * time.Hour }}, Decision{Action: Respond}, 0},
		{"read, old, unreachable, offline", anyPods, all{cacheRead, tooOld, allowsOffline}, Decision{Action: Reject, Rejection: reason.OfflineExpired}, 503},
		{"read, old, unreachable", anyPods, all{cacheRead, tooOld}, Decision{Action: Respond}, 0},
		{"read, unconfirmed", anyPods, all{cacheRead, unconfirmed}, Decision{Action: Reject, Rejection: reason.OfflineDenied}, 503},
		{"read, unconfirmed, offline", anyPods, all{cacheRead, unconfirmed, allowsOffline}, Decision{Action: Respond}, 0},
		{"read, unconfirmed, offline, old", anyPods, all{cacheRead, unconfirmed, allowsOffline, tooOld}, Decision{Action: Reject, Rejection: reason.OfflineExpired}, 503},

		// Watches.
		{"watch, no collection yet", watchPods, all{collection(Unknown)}, Decision{Action: FindCollection}, 0},
		{"watch, cache fails", resumePods, all{cacheFailed}, Decision{Action: Forward, Why: reason.VersionGone}, 0},
		{"watch, cache fails, unconfirmed", resumePods, all{cacheFailed, unconfirmed}, Decision{Action: Forward, Why: reason.VersionGone}, 0},
		{"watch, unconfirmed", resumePods, all{unconfirmed, badPace}, Decision{Action: Reject, Rejection: reason.OfflineDenied}, 503},
		{"watch, bad pace", resumePods, all{badPace}, Decision{Action: Reject}, 500},
		{"watch from a version", resumePods, all{budget(No)}, Decision{Action: ReadCache}, 0},
		{"watch from now, any start", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = true }, budget(No)}, Decision{Action: ReadCache}, 0},
		{"watch from now", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }}, Decision{Action: CheckCurrent}, 0},
		{"watch from now, current", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }, current(Yes)}, Decision{Action: ReadCache}, 0},
		{"watch from now, not current", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }, current(No)}, Decision{Action: CheckFreshness}, 0},
		{"watch from now, budget exhausted, stale allowed", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }, current(No), budget(No), staleAllowed}, Decision{Action: ReadCache, Stale: true}, 0},
		{"watch from now, budget exhausted", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }, current(No), budget(No)}, Decision{Action: Reject, Rejection: reason.OverBudget}, 429},
		{"watch from now, not proven", watchPods, all{func(f *Facts) { f.Query.Options.UnmarkedStart = false }, current(No), fresh(No)}, Decision{Action: Forward, Why: reason.NotCurrent}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newFacts(c.line, c.facts...).Next()
			seen[got.Action] = true
			var code int32
			if got.Err != nil {
				code = api.StatusOf(got.Err).Code
			}
			err := got.Err
			if got.Err = nil; got != c.want || code != c.code {
				t.Errorf("%+v with %d (%v), want %+v with %d", got, code, err, c.want, c.code)
			}
		})
	}
	for a := Reject; a <= Charge; a++ {
		if !seen[a] {
			t.Errorf("no request leads to action %d", a)
		}
	}
}
