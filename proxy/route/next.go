package route

import (
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// MaxSteps bounds the decisions about one request, of which a list takes ten at most.
const MaxSteps = 32

// Next decides what to do next.
func (f *Facts) Next() Decision {
	switch {
	case f.Info.Query != nil && f.Request.Method != "HEAD":
		return f.query()
	case f.IsRead():
		return f.read()
	case f.isSharded():
		return Decision{Action: Reject, Rejection: reason.ShardUnknown, Err: f.shardErr(reason.NotForwarded, nil)}
	case f.Documents.SelfReview:
		return Decision{Action: SelfReview}
	case f.Documents.OfflineDiscovery:
		return Decision{Action: OfflineDiscovery}
	case f.Documents.Discovery:
		return Decision{Action: Discovery}
	case f.Documents.OpenAPI:
		return Decision{Action: OpenAPI}
	}
	return f.forward(reason.NotForwarded)
}

// query decides about a request with parameters that no other server knows. It would ignore them,
// and respond with, or delete, the whole collection. So nothing that has them is forwarded, except
// for resources that are never cached: those of other servers, which may have such parameters.
func (f *Facts) query() Decision {
	if f.Info.Verb != "list" {
		return Decision{Action: Reject, Rejection: reason.QueryUnserved, Err: wrongVerb(f.Info.Verb)}
	}
	if f.Unqualified == reason.Aggregated || f.Unqualified == reason.Unwatchable {
		return f.forward(f.Unqualified)
	}
	return f.read()
}

// read decides about a get, list or watch.
func (f *Facts) read() Decision {
	if f.Unqualified != reason.NotForwarded {
		return f.cannot(f.Unqualified, nil)
	}
	if since := f.fieldSince(); since > 0 {
		switch {
		case !f.ReleaseKnown:
			return Decision{Action: FindRelease}
		case f.Release != 0 && f.Release < since:
			return f.cannot(reason.InvalidSelector, nil)
		}
	}
	return f.authorize()
}

// authorize goes on once it is known that, and which part of, the collection the user may see.
func (f *Facts) authorize() Decision {
	switch {
	case f.Permission == Unknown:
		return Decision{Action: Authorize}
	case f.Permission == No && !f.ShowsVisible():
		return f.forbidden(f.Decision.Reason)
	case f.Permission == No && f.Visible == Unknown:
		return Decision{Action: FindNamespaces}
	case f.Permission == No && f.Visible == No:
		return f.forbidden(f.Decision.Reason)
	case (f.Subject.Offline || f.Decision.Offline) && !f.AllowsOffline():
		return Decision{Action: Reject, Rejection: reason.OfflineDenied, Err: errUnconfirmedClient}
	case !f.Parsed && (f.Info.ShardSelector != "" || f.Info.Query != nil):
		return Decision{Action: ParseParameters}
	case f.ParameterErr != nil:
		return Decision{Action: Reject, Err: f.ParameterErr}
	case f.Info.Verb == "watch":
		return f.watch()
	case f.Query.MostRecent() && !f.Query.CacheOnly() && !f.Immediate && f.Mode() == policy.ModeStrict:
		return f.strict()
	}
	return f.cached()
}

// ShowsVisible reports whether a rule shows the user the visible namespaces of a list or watch of
// all namespaces, or of the Namespaces themselves.
func (f *Facts) ShowsVisible() bool {
	res := f.Query.Resource
	return f.Settings.VisibleLists == policy.Yes && res != nil && (f.Info.Verb == "list" || f.Info.Verb == "watch") &&
		f.Info.Namespace == "" && !f.Info.NamedByPath && (res.Namespaced || res.GroupVersionResource == Namespaces)
}

// AllowsOffline reports whether the client is served by the upstream's last decisions.
func (f *Facts) AllowsOffline() bool { return f.Settings.Offline == policy.Yes }

// cached decides about a get or list that the cache may serve.
func (f *Facts) cached() Decision {
	if d, ok := f.collection(); !ok {
		return d
	}
	if f.Read {
		return f.unlessExpired(Decision{Action: Respond})
	}
	if f.CacheErr != nil {
		return f.unread()
	}
	if !f.Query.MostRecent() {
		return Decision{Action: ReadCache}
	}
	stale, d, ok := f.current()
	switch {
	case ok:
		return Decision{Action: ReadCache, Stale: stale}
	case d.Action != 0:
		return d
	case !f.Query.CacheOnly():
		return f.strict()
	}
	return f.checkFreshness(Decision{Action: ReadCache})
}

// watch decides about a watch.
func (f *Facts) watch() Decision {
	if d, ok := f.collection(); !ok {
		return d
	}
	if f.CacheErr != nil {
		return f.cannot(f.CacheWhy, f.CacheErr)
	}
	if d := f.unlessExpired(Decision{}); d.Action != 0 {
		return d
	}
	if f.PaceErr != nil {
		return Decision{Action: Reject, Err: f.PaceErr}
	}
	if f.Query.Options.ResourceVersion != "" || f.Query.Options.UnmarkedStart {
		return Decision{Action: ReadCache}
	}
	stale, d, ok := f.current()
	switch {
	case ok:
		return Decision{Action: ReadCache, Stale: stale}
	case d.Action != 0:
		return d
	}
	return f.checkFreshness(Decision{Action: ReadCache})
}

// collection makes sure that there is a collection to read.
func (f *Facts) collection() (d Decision, ok bool) {
	switch f.Collection {
	case Unknown:
		return Decision{Action: FindCollection}, false
	case No:
		return f.cannot(f.Missing, nil), false
	}
	return d, true
}

// current reports whether the collection may serve a read of the most recent state, or a stale one
// because the budget is exhausted. Without either, an action says what to find out first.
func (f *Facts) current() (stale bool, d Decision, ok bool) {
	switch {
	case f.Current == Yes:
		return false, d, true
	case f.Current == Unknown:
		return false, Decision{Action: CheckCurrent}, false
	case !f.StaleAllowed:
		return false, d, false
	case f.Budget == Unknown:
		return false, Decision{Action: Charge}, false
	}
	return true, d, f.Budget == No
}

// checkFreshness returns then once the collection is confirmed to hold a state that is as new as the request.
func (f *Facts) checkFreshness(then Decision) Decision {
	if d, ok := f.charge(); !ok {
		return d
	}
	switch f.Fresh {
	case Unknown:
		return Decision{Action: CheckFreshness}
	case No:
		return f.cannot(reason.NotCurrent, nil)
	}
	return then
}

// strict decides about a get or list that needs a request to the upstream.
func (f *Facts) strict() Decision {
	if f.Budget == No && f.StaleAllowed {
		switch {
		case f.Collection == Unknown:
			return Decision{Action: FindCollection}
		case f.Read:
			return f.unlessExpired(Decision{Action: Respond})
		case f.CacheErr != nil:
			return f.cannot(f.CacheWhy, f.CacheErr)
		case f.Collection == Yes:
			return Decision{Action: ReadCache, Stale: true}
		}
	}
	if d, ok := f.charge(); !ok {
		return d
	}
	switch {
	case f.Info.Verb == "list" && f.Query.revalidates() && !f.NotRevalidated:
		return Decision{Action: Revalidate}
	case f.Redacted: // a shared response shows secrets
		return f.cannot(reason.NotCurrent, nil)
	case f.NotCoalesced != reason.NotForwarded:
		return f.cannot(f.NotCoalesced, nil)
	}
	return Decision{Action: Coalesce}
}

// unread decides about a get or list that the cache could not serve. The next page of a list whose
// version the cache does not hold can still be revalidated.
func (f *Facts) unread() Decision {
	q := &f.Query
	if q.Options.Continue != "" && !q.CacheOnly() && f.Info.Verb == "list" && q.revalidates() && !f.NotRevalidated {
		switch f.Budget {
		case Unknown:
			return Decision{Action: Charge}
		case Yes:
			return Decision{Action: Revalidate}
		}
	}
	return f.cannot(f.CacheWhy, f.CacheErr)
}

// unlessExpired returns d unless Expired.
func (f *Facts) unlessExpired(d Decision) Decision {
	if rejection, expired := f.Expired(); expired {
		return rejection
	}
	return d
}

// Expired reports whether a response of Age must not be sent, and the decision instead: it is older
// than the client may be served offline, or no API server has confirmed its collection since a restart
// and the client is not served offline at all.
func (f *Facts) Expired() (d Decision, expired bool) {
	if !f.Unconfirmed && (f.Age <= f.OfflineTTL || !f.Unreachable) {
		return d, false
	}
	switch {
	case !f.AllowsOffline() && f.Unconfirmed:
		return Decision{Action: Reject, Rejection: reason.OfflineDenied, Err: errUnconfirmedCache}, true
	case f.AllowsOffline() && f.Age > f.OfflineTTL:
		return Decision{Action: Reject, Rejection: reason.OfflineExpired, Err: errOfflineExpired}, true
	}
	return d, false
}

// cannot decides about a read that the cache cannot serve. why is the reason, err the error of the cache
// if it was read.
func (f *Facts) cannot(why reason.Forward, err error) Decision {
	switch {
	case f.Query.Visible != nil:
		return Decision{Action: Reject, Rejection: reason.VisibleUnserved, Err: f.visibleErr(why, err)}
	case f.Info.Query != nil && f.Request.Method != "HEAD":
		reject := Decision{Action: Reject, Rejection: reason.QueryUnserved, Err: f.queryErr(why, err)}
		if f.Info.Exact && !f.Subject.UpstreamDecides {
			switch f.Permission { // whoever may not list learns nothing
			case Unknown:
				return Decision{Action: Authorize}
			case No:
				return f.forbidden(f.Decision.Reason)
			}
		}
		return reject
	case f.isSharded():
		if d, ok := f.charge(); !ok {
			return d
		}
		return f.unlessUnredactable(Decision{Action: ForwardShard, Why: why, Err: f.shardErr(why, err)})
	case why == reason.UnknownResource && f.Documents.Discovery:
		return Decision{Action: Discovery, Why: why}
	}
	return f.forward(why)
}

// forward decides about a request that the upstream has to serve. why is the reason for a read.
func (f *Facts) forward(why reason.Forward) Decision {
	if d, ok := f.charge(); !ok {
		return d
	}
	return f.unlessUnredactable(Decision{Action: Forward, Why: why})
}

// unlessUnredactable returns d unless the client sees redacted objects and the upstream's response
// could not be redacted.
func (f *Facts) unlessUnredactable(d Decision) Decision {
	if f.Redacted && !f.isWhole() {
		if err := f.unredactable(); err != nil {
			return Decision{Action: Reject, Rejection: reason.Redacted, Err: err}
		}
	}
	return d
}

// charge makes sure that the client's budgets allow a request to the upstream. If ok is false, the
// decision is what to do instead.
func (f *Facts) charge() (d Decision, ok bool) {
	switch f.Budget {
	case Yes:
		return d, true
	case No:
		return f.OverBudget(), false
	}
	return Decision{Action: Charge}, false
}
