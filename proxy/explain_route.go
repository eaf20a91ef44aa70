package proxy

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
)

// This file goes the way of a request, from Serve on, without taking it. What that asks without counting, waiting or
// sending is asked by the same functions; TestExplainIsWhatHappens compares the ends of both.

// decide finds out the route.
func (e *explaining) decide(ctx context.Context) {
	g, x := e.g, e.x
	if healthz.IsPath(x.request.Path) {
		e.route(string(fromGateway), "", "Answered by kubeweir itself: whether it is well.", 0)
		return
	}
	if pattern, blocked := g.Blocked.Find(x.request.Header.Get("User-Agent")); blocked {
		e.refused(reason.Blocked.String(), 429, fmt.Sprintf("an operator has blocked the user agent %q", pattern))
		return
	}
	if e.spends() {
		e.refused(reason.Blocked.String(), 429, e.rule("block")+" blocks this client")
		return
	}
	r := x.policy.Restrict(x.request, actors(x))
	if x.redacted = r.Redacted; r.Text != "" {
		setting := map[reason.Refusal]string{reason.Redacted: "view", reason.ReadOnly: "readOnly"}[r.Why]
		e.refused(r.Why.String(), 403, fmt.Sprintf("%s (%s)", r.Text, e.rule(setting)))
		return
	}
	if x.redacted {
		e.step("view", "%s shows this client objects without their secret values", e.rule("view"))
	}
	switch {
	case x.info.Query != nil && x.request.Method != "HEAD":
		e.query(ctx)
	case isFeatures(x):
		if e.permitted(ctx) {
			e.route(string(fromGateway), "", "Answered by kubeweir itself: which parameters it has of its own.", 0)
		}
	case isRead(x):
		e.read(ctx)
	default:
		e.other()
	}
}

// spends looks at the budgets of the sender, and reports whether a rule blocks it.
func (e *explaining) spends() (blocked bool) {
	if !e.x.policy.Spends {
		return false
	}
	s := &e.x.spending
	if *s, blocked = e.x.policy.SpendingOf(e.x.sender.User, e.x.request); blocked {
		return true
	}
	s.Each(func(b *policy.Budget, wait time.Duration) {
		left := "something is left"
		if wait > 0 {
			left = fmt.Sprintf("nothing is left, for %d s", policy.Seconds(wait))
			if e.over == nil {
				e.over, e.wait = b, wait
			}
		}
		e.step("budget", "%s allows the sender to cause so much at the cluster (%s: %d): %s", b.Rule.Name, b.Setting, b.PerSecond(), left)
	})
	return false
}

// other is what becomes of what is no read.
func (e *explaining) other() {
	x := e.x
	switch {
	case x.info.ShardSelector != "" && x.request.Method != "HEAD":
		e.refusedBy(reason.ShardUnknown.String(), shardRefusal(x.info, outcome{}))
	case policy.IsSelfReview(x.request) && x.settings.SelfReviews == policy.Yes:
		e.Cost = "One request, unless the answer is remembered."
		e.route(RouteUnknown, "", "Answered from memory if the same user was answered the same question within seconds, else by the upstream, once for all who wait.", 1)
	case !x.info.IsResourceRequest && e.g.Discovered != nil && x.request.Method == "GET" && e.g.isAway() && x.allowsOffline():
		e.route(RouteUnknown, "", "No API server answers: what it said last of what it serves is the answer, with its age, where that is known.", 0)
	case e.g.remembersDiscovery(x) && isDiscovery(x.request) && e.g.followedOf(crdResource) != nil && e.g.followedOf(apiServiceResource) != nil:
		e.Cost = "One request, unless the answer is remembered."
		e.route(RouteUnknown, "", "Answered from memory if the same user was answered the same within seconds, and no definition or APIService has changed since, else by the upstream.", 1)
	case e.revalidatesOpenAPI() && e.over == nil && !e.g.isAway():
		e.Cost = "One request, answered without the document if that has not changed."
		e.route(RouteUnknown, "", "Forwarded with the ETag of the document in memory. If the upstream confirms it with 304, the document in memory is the answer.", 1)
	case x.info.IsWrite():
		e.forward("", "Forwarded: writes always are. The upstream decides whether it is allowed.")
	default:
		e.forward("", "Forwarded: it is no read of a resource. The upstream decides whether it is allowed.")
	}
}

// revalidatesOpenAPI reports whether the OpenAPI document that the request reads is in memory, with
// an ETag.
func (e *explaining) revalidatesOpenAPI() bool {
	if e.g.openAPIDocuments == nil || !isOpenAPI(e.x.request) {
		return false
	}
	key, ok := openAPIKey(e.x)
	return ok && e.g.openAPIDocuments.revalidates(key)
}

// route is the end.
func (e *explaining) route(route, why, text string, requests int) {
	e.Route, e.Why, e.Text, e.UpstreamRequests = route, why, text, requests
	e.step("route", "%s", text)
	if e.Cost == "" {
		e.Cost = map[bool]string{true: "Nothing for the upstream.", false: "The whole request at the upstream."}[requests == 0]
	}
	if e.PermissionText == "" {
		e.PermissionText = "kubeweir does not decide it"
	}
}

// refused is the end of a request that kubeweir refuses.
func (e *explaining) refused(why string, code int, text string) {
	e.Cost = ""
	e.route(RouteRefused, why, fmt.Sprintf("Refused with %d: %s.", code, text), 0)
}

// refusedBy is refused for an error that is the answer.
func (e *explaining) refusedBy(why string, err error) {
	e.refused(why, int(api.StatusOf(err).Code), err.Error())
}

// spent is the end of what nothing is left for of a budget.
func (e *explaining) spent() {
	e.refused(reason.OverBudget.String(), 429, e.over.Spent(e.x.user(), policy.Seconds(e.wait)))
}

// forward is the end of a request that the upstream answers.
func (e *explaining) forward(why, text string) {
	e.Cost = ""
	if e.over != nil {
		e.spent()
		return
	}
	if e.x.redacted && !isWhole(e.x) {
		if _, ok := api.AcceptJSON(e.x.request.Header.Get("Accept"), e.g.printsTables(e.x.info)); !ok {
			e.refused(reason.Redacted.String(), 406, e.rule("view")+" shows this client a redacted view, which is in JSON where the cache does not have it")
			return
		}
		text += " The answer is redacted on its way, or refused if it cannot be."
	}
	if e.g.isAway() {
		text += " No API server answers now, so that it fails."
	}
	e.route(string(fromUpstream), why, text, 1)
}

// unanswered is what becomes of a read that the cache does not answer.
func (e *explaining) unanswered(ctx context.Context, why reason.Forward) {
	x, out := e.x, forwardedFor(why)
	switch {
	case e.q.visible != nil || e.Visible != nil:
		e.refusedBy(reason.VisibleUnanswered.String(), visibleRefusal(x, out))
	case x.info.Query != nil:
		if !x.info.Exact || e.PermissionText != "" || e.permitted(ctx) {
			e.refusedBy(reason.QueryUnanswered.String(), queryRefusal(x.info, out))
		}
	case x.info.ShardSelector != "" && x.request.Method != "HEAD":
		e.route(RouteUnknown, why.String(), "Forwarded, and passed on only if the answer says that it is this shard, else refused. "+why.Entry().When, 1)
	default:
		e.forward(why.String(), "Forwarded. "+why.Entry().When)
	}
}

// query is the way of a request with parameters that no other server knows.
func (e *explaining) query(ctx context.Context) {
	x := e.x
	if x.info.Verb != "list" {
		e.refusedBy(reason.QueryUnanswered.String(), wrongVerb(x.info.Verb))
		return
	}
	if res, why := e.find(); res == nil && (why == reason.Aggregated || why == reason.Unwatchable) {
		e.forward(why.String(), "Forwarded with its parameters, which the API server of this resource may know. "+why.Entry().When)
		return
	}
	e.step("query", "it is sorted, narrowed or counted by values that the cache keeps of each object; nobody else is asked to do that")
	e.read(ctx)
}

// find is Resources.find that starts nothing: to look up what is not known could read discovery anew.
func (e *explaining) find() (*source.Resource, reason.Forward) {
	gvr := schema.GroupVersionResource{Group: e.Info.APIGroup, Version: e.Info.APIVersion, Resource: e.Info.Resource}
	if _, known := e.g.Resources.Known(gvr); !known {
		return nil, reason.UnknownResource
	}
	return e.g.Resources.find(gvr)
}

// read is the way of a get, list or watch.
func (e *explaining) read(ctx context.Context) {
	g, x := e.g, e.x
	why := ambiguity(x)
	if why == reason.NotForwarded {
		_, why = e.find()
	}
	if why == reason.NotForwarded {
		e.q, why = g.qualify(x)
	}
	if why == reason.NotForwarded && e.q.isNewer(g.Manager.KnownMinor) {
		why = reason.InvalidSelector
	}
	if why != reason.NotForwarded {
		e.unanswered(ctx, why)
		return
	}
	q := &e.q
	if !e.permitted(ctx) {
		return
	}
	if err := q.setShard(new(shard.Parser)); err != nil { // the gateway's remembers what it parsed
		e.refusedBy("", err)
		return
	}
	if err := q.setQuery(x.info); err != nil {
		e.refusedBy("", err)
		return
	}
	e.collection()
	switch {
	case x.info.Verb == "watch":
		e.watch(ctx)
	case q.mostRecent() && !q.cacheOnly() && !g.Manager.IsImmediate() && x.mode(q.res) == policy.ModeStrict:
		e.strict(ctx)
	case q.mostRecent():
		e.latest(ctx)
	default:
		e.version(ctx)
	}
}

// permitted looks whether the decision is known, and reports whether to go on.
func (e *explaining) permitted(ctx context.Context) bool {
	x := e.x
	attributes := authz.AttributesOf(x.info)
	d, ok := e.g.Authorizer.Inspect(ctx, x.subject.User, attributes)
	e.PermissionKnown, e.Allowed = ok, ok && d.Allowed
	shows := x.settings.VisibleLists == policy.Yes && e.q.res != nil && showsNamespaces(x.info, e.q.res)
	switch {
	case !ok:
		e.PermissionText = "not known here: the upstream is asked by a SubjectAccessReview, and its answer remembered"
	case d.Allowed:
		e.PermissionText = "allowed, by what is known here"
	default:
		e.PermissionText = "not allowed, by what is known here"
	}
	if ok && d.Reason != "" {
		e.PermissionText += ": " + d.Reason
	}
	e.step("permission", "%s", e.PermissionText)
	switch {
	case !ok && e.over != nil:
		e.spent()
		return false
	case !ok && e.g.isAway():
		e.route(RouteUnknown, "", "Nobody can be asked whether it is allowed, as no API server answers: refused with 503, unless the RBAC objects in the cache allow it and whoever asks is served offline.", 0)
		return false
	case !ok:
		if shows {
			e.step("visible", "if not, %s", e.visible(attributes).Text)
			e.Visible = nil
		}
		return true
	case d.Allowed:
		x.decision = d
	case !shows:
		e.refused(reason.Forbidden.String(), 403, "the upstream does not allow it")
		return false
	case !e.narrowed(attributes):
		return false
	}
	if x.needsOffline() {
		e.refusedBy(reason.OfflineDenied.String(), errUnconfirmedClient)
		return false
	}
	return true
}

// narrowed finds out which namespaces the user sees of all, who may not see all, and reports whether there are any.
func (e *explaining) narrowed(a authz.Attributes) bool {
	e.Visible = e.visible(a)
	e.step("visible", "%s", e.Visible.Text)
	look := e.g.visible.Inspect(e.x.subject.User, a)
	switch {
	case !look.Current && e.over != nil:
		e.Visible = nil
		e.spent()
		return false
	case look.Current && look.Set.Namespaces.Len() == 0, !look.Current && (!look.Known || !look.Everywhere && look.Candidates == 0):
		e.refused(reason.Forbidden.String(), 403, "the upstream does not allow it, and in none of the namespaces either, as far as that is known")
		return false
	case look.Set != nil:
		e.q.visible, e.x.decision = look.Set, look.Set.Decision
	default:
		e.q.visible = &visible.Set{} // some, which are still to be found out
	}
	return true
}

// visible is what is known of the namespaces that are shown.
func (e *explaining) visible(a authz.Attributes) *ExplainedVisible {
	look := e.g.visible.Inspect(e.x.subject.User, a)
	v := &ExplainedVisible{Rule: e.rule("visibleLists")}
	granted := fmt.Sprintf("the RBAC objects in the cache grant it in %d namespaces", look.Candidates)
	switch {
	case !look.Known:
		granted = "the RBAC objects of the cluster are not in the cache, so that nobody can tell in which"
	case look.Everywhere:
		granted = "the RBAC objects in the cache grant it in all namespaces"
	}
	switch {
	case look.Set == nil:
		v.Text = fmt.Sprintf("%s shows the namespaces in which the user may; %s, and the upstream is asked about each by a SubjectAccessReview", v.Rule, granted)
	case look.Current:
		v.Known, v.Namespaces = true, look.Set.Namespaces.Len()
		v.Text = fmt.Sprintf("%s shows the %d namespaces in which the user may, as is remembered", v.Rule, v.Namespaces)
	default:
		v.Known, v.Namespaces = true, look.Set.Namespaces.Len()
		v.Text = fmt.Sprintf("%s shows the namespaces in which the user may; there were %d of them, which are confirmed again; %s", v.Rule, v.Namespaces, granted)
	}
	return v
}

// collection looks for what would be read, without using it.
func (e *explaining) collection() {
	res, encoding := e.q.res, e.q.encoding()
	for _, c := range e.g.Manager.Status() {
		if c.Resource == res.GroupVersionResource && c.Encoding == encoding {
			e.Collection = &c
		}
	}
	if e.Collection == nil {
		e.step("collection", "none of %s (%s) yet", res.GroupResource(), encoding)
		return
	}
	e.c = e.g.Manager.PeekCollection(res, encoding) // after Status: it may stop meanwhile, and c has a status
	e.step("collection", "%s (%s) is %s, with %d objects at version %d", res.GroupResource(), encoding, e.Collection.State.Phase, e.Collection.Objects, e.Collection.RV)
}

// cached is the end of a read that the cache answers, which takes so many requests.
func (e *explaining) cached(ctx context.Context, text string, requests int) {
	switch {
	case e.c == nil && e.g.isAway():
		e.unanswered(ctx, reason.CacheUnavailable)
		return
	case e.c == nil:
		e.Cost = "One list and one watch at the upstream, for all who read this from then on."
		text, requests = text+" That waits until the collection is complete.", requests+2
	default:
		age := e.g.ageOf(e.c)
		if why, err := e.g.expiry(e.x, e.c, age); err != nil {
			e.refusedBy(why.String(), err)
			return
		}
		if age > 0 {
			text += fmt.Sprintf(" It says its age, of %d s.", int(age/time.Second))
		}
	}
	if e.Visible != nil {
		text += " A Warning says how many namespaces are shown."
	}
	e.route(string(fromCache), "", text, requests)
}

// holds reports whether the cache may answer a read of the most recent state, as far as that is known without waiting.
func (e *explaining) holds() bool {
	g, x := e.g, e.x
	switch {
	case g.Manager.IsImmediate():
		return true
	case x.mode(e.q.res) == policy.ModeStrict:
		return false
	case e.c == nil, g.isAway() && x.allowsOffline():
		return true
	}
	state := e.c.State()
	most := x.policy.Consistency.MaxStaleness
	return state.Phase == reflector.Synced && (most == 0 || max(time.Since(state.LastContact), state.Delay) <= most)
}

// stale reports whether a read of the most recent state is answered with what there is, because of a budget.
func (e *explaining) stale() bool {
	most := e.x.policy.Consistency.MaxStaleness
	return e.over != nil && e.x.spending.Cached && e.c != nil && (most == 0 || behind(e.c) <= most)
}

const (
	textHeld   = "Answered from the cache, in the mode session, as soon as it holds every write made through this gateway."
	textPrompt = "Answered from the cache as soon as it holds what the store held when the request came."
	textStale  = "The budget is spent: answered with what the cache holds, and its age."
	textProven = "Answered from the cache, which is shown to hold the most recent state first."
	costProven = "One small request, the version or the names of the objects, which all who ask meanwhile share."
)

// latest is the way of a get or list of the most recent state that the cache may answer.
func (e *explaining) latest(ctx context.Context) {
	switch {
	case e.holds() && e.g.Manager.IsImmediate():
		e.cached(ctx, textPrompt, 0)
	case e.holds():
		e.cached(ctx, textHeld, 0)
	case e.stale():
		e.cached(ctx, textStale, 0)
	case !e.q.cacheOnly():
		e.strict(ctx)
	case e.over != nil:
		e.spent()
	case e.g.isAway():
		e.unanswered(ctx, reason.Unproven)
	default:
		e.Cost = costProven
		e.cached(ctx, textProven, 1)
	}
}

// strict is the way of a get or list that the upstream has to be asked for.
func (e *explaining) strict(ctx context.Context) {
	g, q := e.g, &e.q
	synced := e.c != nil && e.c.State().Phase == reflector.Synced
	switch {
	case e.over != nil && synced && e.stale():
		e.cached(ctx, textStale, 0)
	case e.over != nil:
		e.spent()
	case synced && e.Info.Verb == "list" && revalidates(q.res, q.rep) && e.c.Freshness().CanRevalidate() && !g.isAway():
		e.Cost = "The names and versions of the objects, in metadata alone, shared by all who ask meanwhile."
		e.route(string(fromRevalidated), "", "The read asks for the most recent state, and its mode is strict: the upstream names the versions that are current, and the cache has their bytes.", 1)
	case g.refusals.has(refusal{e.Info.Verb, q.res.GroupResource(), e.Info.Namespace}):
		e.unanswered(ctx, reason.GatewayRefused)
	case g.collapser.knownLarge(keyOfCollapsed(e.x.request, e.x.pretty)):
		e.unanswered(ctx, reason.TooLargeToShare)
	default:
		e.Cost = "One request, which all who ask the same meanwhile share."
		text := "The read asks for the most recent state, and its mode is strict: the upstream answers, once for all who ask the same at the time. A resourceVersion, or the mode session, would have the cache answer."
		if g.isAway() {
			text += " No API server answers now, so that it fails."
		}
		e.route(string(fromCollapsed), "", text, 1)
	}
}

// version is the way of a get or list of a version that it names.
func (e *explaining) version(ctx context.Context) {
	o := &e.q.options
	rv, _ := strconv.ParseUint(o.ResourceVersion, 10, 64) // it was looked at, see qualify
	exact := e.Info.Verb == "list" && (o.ResourceVersionMatch == "Exact" || o.ResourceVersionMatch == "" && rv > 0 && o.Limit > 0)
	if token, err := api.DecodeContinue(o.Continue); o.Continue != "" && err == nil {
		rv, exact = uint64(max(token.ResourceVersion, 0)), true
	}
	switch {
	case e.Info.Verb == "list" && rv == 0 && o.Continue == "" && o.ResourceVersion != "0":
		e.unanswered(ctx, reason.AmbiguousVersion)
	case e.c == nil:
		e.cached(ctx, "Answered from the cache.", 0)
	case rv > e.c.RV() && o.Continue == "":
		e.Cost = "Nothing for the upstream if the cache gets there within a moment."
		e.route(RouteUnknown, reason.VersionAhead.String(), "The version is above what the cache holds now: it waits a moment for it, and else the upstream is asked.", 1)
	case exact && rv < e.Collection.Watches.Oldest:
		e.Cost = "Nothing for the upstream if the state of that version was kept."
		e.route(RouteUnknown, reason.VersionGone.String(), "The version is older than the history of the cache: answered from it if the state was kept for pages, else by the upstream.", 1)
	case o.Continue != "":
		e.cached(ctx, "The next part of a list, answered from the cache, which still holds that version.", 0)
	case exact:
		e.cached(ctx, "Answered from the cache, which holds the state of that version.", 0)
	default:
		e.cached(ctx, "Answered from the cache, which holds a version that is new enough.", 0)
	}
}

// watch is the way of a watch.
func (e *explaining) watch(ctx context.Context) {
	x, o := e.x, &e.q.options
	pace, err := x.pace()
	if err != nil {
		e.refusedBy("", err)
		return
	}
	switch {
	case pace.Coalesce > 0 && x.info.Coalesce != nil:
		e.step("pace", "events wait %v for others of the same object, as the client or %s says", pace.Coalesce, e.rule("coalesce"))
	case pace.Coalesce > 0:
		e.step("pace", "events wait %v for others of the same object, as %s says", pace.Coalesce, e.rule("coalesce"))
	}
	if pace.BytesPerSecond > 0 {
		e.step("pace", "above %d bytes/s they wait longer (watchBytesPerSecond of %s)", pace.BytesPerSecond, e.rule("watchBytesPerSecond"))
	}
	const text = "Served from the cache, which has one watch at the upstream for all."
	e.Cost = "Nothing for the upstream: all watches share the collection's."
	from, _ := api.ParseResourceVersion(o.ResourceVersion) // it was looked at, see qualify
	switch {
	case o.ResourceVersion == "" && !o.UnmarkedStart && !e.holds() && !e.stale():
		switch {
		case e.over != nil:
			e.spent()
		case e.g.isAway():
			e.unanswered(ctx, reason.Unproven)
		default:
			e.Cost = costProven
			e.cached(ctx, text+" It begins with the most recent state, which the cache is shown to hold first.", 1)
		}
	case e.c != nil && from > 0 && from < e.Collection.Watches.Oldest && !o.SendInitialEvents && e.Visible == nil:
		e.unanswered(ctx, reason.History)
	case e.c != nil && from > e.c.RV() && o.SendInitialEvents:
		e.route(RouteUnknown, reason.VersionAhead.String(), "The version is above what the cache holds now: it waits for it, and else the upstream is asked.", 1)
	default:
		e.cached(ctx, text, 0)
	}
}
