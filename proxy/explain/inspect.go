package explain

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// decide determines how the request would be handled.
func (e *explaining) decide(ctx context.Context) {
	g, x := e.g, e.x
	if healthz.IsPath(x.Request.Path) {
		e.route(string(response.FromGateway), "", "Served by kubeweir itself: a health check.", 0)
		return
	}
	if pattern, blocked := g.Blocked.Find(x.Request.Header.Get("User-Agent")); blocked {
		e.rejected(reason.Blocked, 429, fmt.Sprintf("an operator has blocked the user agent %q", pattern))
		return
	}
	if e.chargesBudgets() {
		e.rejected(reason.Blocked, 429, e.rule("block")+" blocks this client")
		return
	}
	r := e.policy.Restrict(x.Request, x.Subject.Actors())
	if x.Redacted = r.Redacted; r.Text != "" {
		setting := map[reason.Rejection]string{reason.Redacted: "view", reason.ReadOnly: "readOnly"}[r.Why]
		e.rejected(r.Why, 403, fmt.Sprintf("%s (%s)", r.Text, e.rule(setting)))
		return
	}
	if x.Redacted {
		e.step("view", "%s shows this client objects without their secret values", e.rule("view"))
	}
	g.Gather(x, e.policy, inspectedResources{g.Resources})
	if x.Info.Query != nil {
		e.step("query", "the cache sorts, filters or counts by values of each object; such a request is never forwarded")
	}
	for range route.MaxSteps {
		if d := x.Next(); e.end(d) || e.learn(ctx, d.Action) {
			return
		}
	}
}

// chargesBudgets looks at the budgets of the client, and reports whether a rule blocks it.
func (e *explaining) chargesBudgets() (blocked bool) {
	x := e.x
	if !e.policy.HasBudgets {
		return false
	}
	if x.Budgets, blocked = e.policy.ClientBudgetsOf(x.Subject.User, x.Request); blocked {
		return true
	}
	for b, wait := range x.Budgets.Waits() {
		left := "something is left"
		if wait > 0 {
			left = fmt.Sprintf("nothing is left, for %d s", policy.Seconds(wait))
			if x.Budgets.Exceeded == nil {
				x.Budgets.Exceeded, x.Budgets.Wait = b, wait
			}
		}
		e.step("budget", "%s limits what the sender may cause at the cluster (%s: %d): %s", b.Rule.Name, b.Setting, b.PerSecond(), left)
	}
	return false
}

// over reports whether a budget of the client is exhausted.
func (e *explaining) over() bool { return e.x.Budgets.Exceeded != nil }

// route records the final decision.
func (e *explaining) route(name, why, text string, requests int) {
	e.Route, e.Why, e.Text, e.UpstreamRequests = name, why, text, requests
	e.step("route", "%s", text)
	if e.Cost == "" {
		e.Cost = map[bool]string{true: "Nothing for the upstream.", false: "The whole request at the upstream."}[requests == 0]
	}
	if e.PermissionText == "" {
		e.PermissionText = "kubeweir does not decide it"
	}
}

// rejected is the end of a request that kubeweir rejects.
func (e *explaining) rejected(why reason.Rejection, code int, text string) {
	e.Cost = ""
	label := ""
	if why != 0 {
		label = why.String()
	}
	e.route(RouteRejected, label, fmt.Sprintf("Rejected with %d: %s.", code, text), 0)
}

// end describes a decision that ends with a response, or may.
func (e *explaining) end(d route.Decision) (ended bool) {
	x := e.x
	switch d.Action {
	case route.Reject:
		e.rejected(d.Rejection, int(api.StatusOf(d.Err).Code), d.Err.Error())
	case route.Forward:
		e.forwarded(d.Why)
	case route.ForwardShard:
		e.route(RouteUnknown, d.Why.String(), "Forwarded. The response is passed on only if it is this shard, and rejected otherwise. "+d.Why.Entry().When, 1)
	case route.SelfReview:
		e.Cost = "One request, unless the response is cached."
		e.route(RouteUnknown, "", "Served from memory if the same user got a response to the same review within seconds; otherwise by the upstream, once for all concurrent requests.", 1)
	case route.OfflineDiscovery:
		if !e.hasOfflineDiscovery() {
			return false
		}
		e.route(RouteUnknown, "", "No API server responds: served from the last discovery, with its age, if that is known.", 0)
	case route.Discovery:
		if d.Why != reason.NotForwarded {
			e.forwarded(d.Why)
			break
		}
		e.Cost = "One request, unless the response is cached."
		e.route(RouteUnknown, "", "Served from memory if the same user got the same response within seconds, and no definition or APIService has changed since; otherwise by the upstream.", 1)
	case route.OpenAPI:
		if !e.revalidatesOpenAPI() {
			return false
		}
		e.Cost = "One request, whose response has no body if the document has not changed."
		e.route(RouteUnknown, "", "Forwarded with the ETag of the document in memory. If the upstream confirms it with 304, the document in memory is served.", 1)
	case route.ReadCache:
		return e.cached(d.Stale)
	case route.Revalidate:
		e.peek()
		if e.c == nil || e.c.State().Phase != reflector.Synced || !e.c.Freshness().CanRevalidate() || x.Unreachable {
			return false
		}
		e.Cost = "The names and versions of the objects, as metadata, shared by concurrent requests."
		e.route(string(response.FromRevalidated), "", "The read requires the most recent state, and its mode is strict: the upstream lists the current versions, and the cache has their bytes.", 1)
	case route.Coalesce:
		if x.NotCoalesced = e.notCoalesced(); x.NotCoalesced != reason.NotForwarded {
			return false
		}
		e.Cost = "One request, which identical concurrent requests share."
		text := "The read requires the most recent state, and its mode is strict: the upstream responds, once for all identical concurrent requests. With a resourceVersion, or in mode session, the cache would serve it."
		e.route(string(response.FromCollapsed), "", e.unlessAway(text), 1)
	default:
		return false
	}
	return true
}

// forwarded is the end of a request that the upstream serves.
func (e *explaining) forwarded(why reason.Forward) {
	text, label := "Forwarded: the request does not read a resource. The upstream decides whether it is allowed.", ""
	switch {
	case why != reason.NotForwarded:
		text, label = "Forwarded. "+why.Entry().When, why.String()
	case e.x.Info.IsWrite():
		text = "Forwarded, like all writes. The upstream decides whether it is allowed."
	}
	if e.x.Redacted && e.x.Info.IsResourceRequest && !policy.IsSelfReview(e.x.Request) {
		text += " The response is redacted, or rejected if that is not possible."
	}
	e.Cost = ""
	e.route(string(response.FromUpstream), label, e.unlessAway(text), 1)
}

// unlessAway adds that a request to the upstream fails if no API server responds.
func (e *explaining) unlessAway(text string) string {
	if e.x.Unreachable {
		text += " No API server responds now, so the request fails."
	}
	return text
}

// hasOfflineDiscovery reports whether the gateway has the document that the request reads.
func (e *explaining) hasOfflineDiscovery() bool {
	docs, r := e.g.Discovered(), e.x.Request
	body, _ := discovery.Document(&docs, r.Path, r.Header.Get("Accept"))
	return body != nil && time.Since(docs.At) <= e.policy.Offline.TTL
}

// revalidatesOpenAPI reports whether the OpenAPI document that the request reads is in memory, with
// an ETag, and may be confirmed.
func (e *explaining) revalidatesOpenAPI() bool {
	key, ok := openapi.KeyOf(e.x.Request, e.x.Pretty)
	return ok && !e.over() && !e.x.Unreachable && e.g.OpenAPI.Revalidates(key)
}

// notCoalesced returns the reason why the read would not be shared, as far as that is known.
func (e *explaining) notCoalesced() reason.Forward {
	g, x := e.g, e.x
	switch {
	case g.Rejections.Has(consistency.Rejected{Verb: x.Info.Verb, Resource: x.Query.Resource.GroupResource(), Namespace: x.Info.Namespace}):
		return reason.GatewayRejected
	case g.Coalescer.KnownLarge(consistency.KeyOf(x.Request, x.Pretty)):
		return reason.TooLargeToShare
	}
	return reason.NotForwarded
}

// learn looks at a fact. It reports whether that ends the explanation.
func (e *explaining) learn(ctx context.Context, a route.Action) (ended bool) {
	g, x := e.g, e.x
	switch a {
	case route.ParseParameters:
		x.ParseParameters(new(shard.Parser)) // the gateway's remembers what it parsed
	case route.FindRelease:
		x.Release, x.ReleaseKnown = g.Manager.KnownMinor(), true
	case route.Authorize:
		return e.authorize(ctx)
	case route.FindNamespaces:
		return e.findNamespaces()
	case route.FindCollection:
		e.findCollection()
	case route.CheckCurrent:
		x.Current = route.StateOf(e.holds())
		x.StaleAllowed = x.AllowsStale(e.c)
	case route.CheckFreshness:
		if x.Fresh = route.StateOf(!x.Unreachable); !x.Unreachable {
			e.Cost = "One small request, for the version or the names of the objects, which concurrent requests share."
		}
	case route.Charge:
		if x.Budget = route.StateOf(!e.over()); e.over() && x.Collection == route.Unknown && x.Query.Resource != nil {
			e.peek()
			x.StaleAllowed = e.c != nil && e.c.State().Phase == reflector.Synced && x.AllowsStale(e.c)
		}
	case route.Revalidate:
		x.NotRevalidated = true
	default:
		x.Documents.Clear(a)
	}
	return false
}

// authorize looks whether the permission is known.
func (e *explaining) authorize(ctx context.Context) (ended bool) {
	x := e.x
	attributes := authz.AttributesOf(x.Info)
	d, ok := e.g.Authorizer.Inspect(ctx, x.Subject.User, attributes)
	e.PermissionKnown, e.Allowed = ok, ok && d.Allowed
	switch {
	case !ok:
		e.PermissionText = "not cached: the upstream decides by a SubjectAccessReview, and its decision is cached"
	case d.Allowed:
		e.PermissionText = "allowed, by the cached decision or rules"
	default:
		e.PermissionText = "not allowed, by the cached decision or rules"
	}
	if ok && d.Reason != "" {
		e.PermissionText += ": " + d.Reason
	}
	e.step("permission", "%s", e.PermissionText)
	x.Decision, x.Permission = d, route.StateOf(d.Allowed || !ok)
	switch {
	case ok:
		return false
	case e.over():
		x.Budget = route.No
		return e.end(x.OverBudget())
	case x.Unreachable:
		e.route(RouteUnknown, "", "No API server responds, so the permission cannot be reviewed: rejected with 503, unless the RBAC objects in the cache allow the request and its client is served offline.", 0)
		return true
	case x.ShowsVisible():
		v, _ := e.visible(attributes)
		e.step("visible", "if not, %s", v.Text)
	}
	return false
}

// findNamespaces looks which namespaces the user sees of all.
func (e *explaining) findNamespaces() (ended bool) {
	x := e.x
	v, i := e.visible(authz.AttributesOf(x.Info))
	e.step("visible", "%s", v.Text)
	switch {
	case !i.Current && e.over():
		return e.end(x.OverBudget())
	case i.Current && i.Set.Namespaces.Len() == 0, !i.Current && (!i.Known || !i.Everywhere && i.Candidates == 0):
		x.Visible = route.No
	case i.Set != nil:
		x.Visible, x.Query.Visible, x.Decision = route.Yes, i.Set, i.Set.Decision
	default:
		x.Visible, x.Query.Visible = route.Yes, &visible.Set{} // some, which are still to be found
	}
	if x.Visible == route.Yes {
		e.Visible = v
	}
	return false
}

// visible describes the namespaces that would be shown.
func (e *explaining) visible(a authz.Attributes) (*Visible, visible.Inspection) {
	look := e.g.Visible.Inspect(e.x.Subject.User, a)
	v := &Visible{Rule: e.rule("visibleLists")}
	granted := fmt.Sprintf("the RBAC objects in the cache grant it in %d namespaces", look.Candidates)
	switch {
	case !look.Known:
		granted = "the RBAC objects of the cluster are not in the cache, so that it is unknown in which"
	case look.Everywhere:
		granted = "the RBAC objects in the cache grant it in all namespaces"
	}
	switch {
	case look.Set == nil:
		v.Text = fmt.Sprintf("%s shows the namespaces in which the user may; %s, and each is confirmed by a SubjectAccessReview", v.Rule, granted)
	case look.Current:
		v.Known, v.Namespaces = true, look.Set.Namespaces.Len()
		v.Text = fmt.Sprintf("%s shows the %d namespaces that are confirmed for the user", v.Rule, v.Namespaces)
	default:
		v.Known, v.Namespaces = true, look.Set.Namespaces.Len()
		v.Text = fmt.Sprintf("%s shows the namespaces in which the user may; there were %d, which are confirmed again; %s", v.Rule, v.Namespaces, granted)
	}
	return v, look
}

// inspectedResources finds resources without reading discovery anew for an unknown one.
type inspectedResources struct{ Resources }

// Find implements route.Resources.
func (r inspectedResources) Find(gvr schema.GroupVersionResource) (*source.Resource, reason.Forward) {
	if _, known := r.Known(gvr); !known {
		return nil, reason.UnknownResource
	}
	return r.Resources.Find(gvr)
}

// peek looks for the collection that would be read, without using it.
func (e *explaining) peek() {
	res, encoding := e.x.Query.Resource, e.x.Query.Encoding()
	for _, c := range e.g.Manager.Status() {
		if c.Resource == res.GroupVersionResource && c.Encoding == encoding {
			e.status, e.Collection = &c, &Collection{c.State.Phase.String(), c.Objects, c.Bytes}
		}
	}
	if e.status != nil {
		e.c = e.g.Manager.PeekCollection(res, encoding) // after Status: it may stop meanwhile, and c has a status
	}
}

// findCollection looks for the collection that would be read. One that is not there yet would be
// started.
func (e *explaining) findCollection() {
	x := e.x
	e.peek()
	if e.status == nil {
		e.step("collection", "none of %s (%s) yet", x.Query.Resource.GroupResource(), x.Query.Encoding())
	} else {
		e.step("collection", "%s (%s) is %s, with %d objects at version %d", x.Query.Resource.GroupResource(), x.Query.Encoding(), e.status.State.Phase, e.status.Objects, e.status.RV)
	}
	x.Collection = route.StateOf(e.c != nil || !x.Unreachable)
	x.Missing = reason.CacheUnavailable
	if e.c != nil {
		x.FindAge(e.c)
	}
	if x.Info.Verb == "watch" {
		e.pace()
	}
}

// pace describes how the events of a watch are delivered.
func (e *explaining) pace() {
	x := e.x
	x.ParsePace()
	if x.Pace.Coalesce > 0 {
		who := e.rule("coalesce") + " says"
		if x.Info.Coalesce != nil {
			who = "the client or " + who
		}
		e.step("pace", "events wait %v for others of the same object, as %s", x.Pace.Coalesce, who)
	}
	if x.Pace.BytesPerSecond > 0 {
		e.step("pace", "above %d bytes/s they wait longer (watchBytesPerSecond of %s)", x.Pace.BytesPerSecond, e.rule("watchBytesPerSecond"))
	}
}

// holds reports whether the cache may serve a read of the most recent state, as far as that is known
// without waiting.
func (e *explaining) holds() bool {
	x := e.x
	switch {
	case x.Immediate:
		return true
	case x.Mode() == policy.ModeStrict:
		return false
	case e.c == nil, x.Unreachable && x.AllowsOffline():
		return true
	}
	state := e.c.State()
	return state.Phase == reflector.Synced && (x.MaxStaleness == 0 || state.Staleness() <= x.MaxStaleness)
}

// cached describes a read that the cache serves, unless it does not have the requested version.
func (e *explaining) cached(stale bool) (ended bool) {
	x := e.x
	if e.c != nil && !stale {
		var unknown reason.Forward
		if x.CacheWhy, unknown = e.unheld(); unknown != reason.NotForwarded {
			e.Cost = "None if the cache reaches the version within a moment, or has retained the state of that version."
			e.route(RouteUnknown, unknown.String(), unknown.Entry().When+" Otherwise the cache serves it.", 1)
			return true
		}
		if x.CacheWhy != reason.NotForwarded {
			x.CacheErr = read.ErrForward
			return false
		}
	}
	if d, expired := x.Expired(); expired {
		return e.end(d)
	}
	e.route(string(response.FromCache), "", e.cachedText(stale), e.cachedRequests())
	return true
}

// unheld returns why the collection does not have the version that the read asks for, or, if that
// only shows once it is read, why it may not.
func (e *explaining) unheld() (why, unknown reason.Forward) {
	x, o := e.x, &e.x.Query.Options
	rv, _ := api.ParseResourceVersion(o.ResourceVersion) // see route.Facts.Qualify
	oldest := e.status.Watches.Oldest
	if x.Info.Verb == "watch" {
		switch {
		case rv > 0 && rv < oldest && !o.SendInitialEvents && e.Visible == nil:
			return 0, reason.History
		case rv > e.c.RV() && o.SendInitialEvents:
			return 0, reason.VersionAhead
		}
		return 0, 0
	}
	if x.Query.MostRecent() {
		return 0, 0
	}
	isList := x.Info.Verb == "list"
	exact := isList && (o.ResourceVersionMatch == "Exact" || o.ResourceVersionMatch == "" && rv > 0 && o.Limit > 0)
	if token, err := api.DecodeContinue(o.Continue); o.Continue != "" && err == nil {
		rv, exact = uint64(max(token.ResourceVersion, 0)), true
	}
	switch {
	case isList && rv == 0 && o.Continue == "" && o.ResourceVersion != "0":
		return reason.AmbiguousVersion, 0
	case rv > e.c.RV() && o.Continue == "":
		return 0, reason.VersionAhead
	case exact && rv < oldest:
		return 0, reason.VersionGone
	}
	return 0, 0
}

// cachedText describes why the cache may serve the read.
func (e *explaining) cachedText(stale bool) (text string) {
	x := e.x
	recent := x.Query.MostRecent()
	if x.Info.Verb == "watch" {
		recent = x.Query.Options.ResourceVersion == "" && !x.Query.Options.UnmarkedStart
	}
	switch {
	case stale:
		text = "The budget is exhausted: served from the cache, with the age of its state."
	case !recent:
		text = "Served from the cache, which holds the requested version."
	case x.Fresh == route.Yes:
		text = "Served from the cache after a check that it holds the most recent state."
	case x.Immediate:
		text = "Served from the cache as soon as it holds the state that the store had when the request arrived."
	default:
		text = "Served from the cache, in mode session, as soon as it holds every write made through this gateway."
	}
	if x.Info.Verb == "watch" {
		text += " All watches share one watch at the upstream."
	}
	switch {
	case e.c == nil:
		text += " That waits until the collection is complete."
	case x.Age > 0:
		text += fmt.Sprintf(" The response states its age, %d s.", int(x.Age/time.Second))
	}
	if e.Visible != nil {
		text += " A Warning states how many namespaces are shown."
	}
	return text
}

// cachedRequests returns how many requests the upstream gets for a read that the cache serves.
func (e *explaining) cachedRequests() (n int) {
	if e.x.Fresh == route.Yes {
		n = 1
	}
	if e.c == nil {
		e.Cost = "One list and one watch at the upstream, for all who read this from then on."
		n += 2
	}
	return n
}
