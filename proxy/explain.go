package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/reason"
)

// Question is a request that nobody sends.
type Question struct {
	Method string
	// Target is the path with its query, or a URL.
	Target string
	// User and Groups are who asks. Without groups they are those of a user of that name
	// who is remembered, or those that every such user has.
	User              string
	Groups            []string
	UserAgent, Accept string
}

// Explanation is what would become of a request now, as far as that is known without asking
// the upstream.
type Explanation struct {
	Info *api.RequestInfo
	// Route is one of the values of the label source, RouteRefused or RouteUnknown.
	Route string
	// Why is the label of the reason, "" where there is none; Text says it all in a sentence
	// or two.
	Why, Text string
	// PermissionKnown tells that Allowed is what would be decided; PermissionText says how that
	// is known, or who is asked.
	PermissionKnown, Allowed bool
	PermissionText           string
	// Settings are what the rules decide.
	Settings map[string]string
	// Collection is what would be read, nil if there is none.
	Collection *cache.CollectionStatus
	// UpstreamRequests is how many requests the upstream would get, but for reviews; Cost
	// says it in words.
	UpstreamRequests int
	Cost             string
	Steps            []ExplainedStep
}

// ExplainedStep is one on the way of a request.
type ExplainedStep struct{ Step, Text string }

// Routes besides those of the label source.
const (
	RouteRefused = "refused"
	RouteUnknown = "unknown"
)

// The errors of Explain are about the question.
var (
	errNoMethod = errors.New("the method must be one of HTTP, such as GET")
	errNoTarget = errors.New("the path must be one of the API, such as /api/v1/namespaces/default/pods?limit=500")
)

// maxQuestionTarget bounds a path, in bytes.
const maxQuestionTarget = 8 << 10

// Explain says what would become of a request. It sends nothing, starts nothing and counts
// nothing, and tells nothing of objects.
func (g *Gateway) Explain(ctx context.Context, q Question) (*Explanation, error) {
	x, err := questioned(q)
	if err != nil {
		return nil, err
	}
	e := &explaining{g: g, x: x, Explanation: &Explanation{Info: x.info}}
	e.parsed()
	e.identify(q)
	x.settings = g.rules.decide(x.subject.User, q.UserAgent, x.info)
	e.Settings = x.settings.describe()
	e.decide(ctx)
	return e.Explanation, nil
}

// questioned makes an exchange of a question.
func questioned(q Question) (*exchange, error) {
	method := strings.ToUpper(strings.TrimSpace(q.Method))
	if method == "" || len(method) > 16 || strings.ContainsFunc(method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return nil, errNoMethod
	}
	target := strings.TrimSpace(q.Target)
	if len(target) > maxQuestionTarget {
		return nil, errNoTarget
	}
	u, err := url.Parse(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") {
		return nil, errNoTarget
	}
	r := &api.Request{Method: method, Path: u.Path, RawPath: u.EscapedPath(), RawQuery: u.RawQuery, Proto: "HTTP/1.1"}
	for name, value := range map[string]string{"Accept": q.Accept, "User-Agent": q.UserAgent} {
		if value != "" {
			r.Header.Add(name, value)
		}
	}
	return &exchange{request: r, info: r.Info(), began: time.Now(), source: fromGateway}, nil
}

// explaining is an Explanation that comes to be.
type explaining struct {
	*Explanation
	g *Gateway
	x *exchange
}

func (e *explaining) step(name, format string, args ...any) {
	e.Steps = append(e.Steps, ExplainedStep{name, fmt.Sprintf(format, args...)})
}

func (e *explaining) parsed() {
	i := e.Info
	if !i.IsResourceRequest {
		e.step("parsed", "%s of the path %s, which is no resource", i.Verb, brief(i.Path))
		return
	}
	what := schema.GroupResource{Group: i.APIGroup, Resource: i.Resource}.String()
	if i.Subresource != "" {
		what += "/" + i.Subresource
	}
	where := ", of the whole cluster"
	if i.Namespace != "" {
		where = ", in the namespace " + i.Namespace
	}
	name := ""
	if i.Name != "" {
		name = " called " + i.Name
	}
	e.step("parsed", "%s of %s%s%s", i.Verb, what, name, where)
}

// identify finds out who asks.
func (e *explaining) identify(q Question) {
	known := e.g.Authenticator.Remembered(q.User)
	switch {
	case q.User == "":
		known = identity.NewUser(&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}})
		e.step("identity", "nobody: a request without credentials, which is %s where those are let in", user.Anonymous)
	case len(q.Groups) > 0 || known == nil:
		groups := append(append([]string{}, q.Groups...), user.AllAuthenticated)
		if namespace, _, err := serviceaccount.SplitUsername(q.User); err == nil {
			groups = append(serviceaccount.MakeGroupNames(namespace), groups...)
		}
		known = identity.NewUser(&user.DefaultInfo{Name: q.User, Groups: groups})
		e.step("identity", "%s with the groups %s, as they are given here", q.User, strings.Join(groups, ", "))
	default:
		e.step("identity", "%s with the groups %s, as the credential in use tells", known.GetName(), strings.Join(known.GetGroups(), ", "))
	}
	e.x.sender = &identity.Identity{User: known, Source: identity.BearerToken}
	e.x.subject = &identity.Subject{Identity: e.x.sender, User: known}
}

// decide finds out the route.
func (e *explaining) decide(ctx context.Context) {
	g, x := e.g, e.x
	x.redacted = g.redacts && g.restrictsSomebody(x, redactedOf)
	unshown := ""
	if x.redacted {
		unshown = unredactable(x.request)
	}
	_, blocked := g.spendingOf(x)
	agent := g.Blocked.find(x.request.Header.Get("User-Agent"))
	switch {
	case isHealth(x.request.Path):
		e.route(string(fromGateway), "", "Answered by kubeweir itself: whether it is well.", 0)
	case agent != nil:
		e.route(RouteRefused, reason.Blocked.String(), fmt.Sprintf("Refused with 429: an operator has blocked the user agent %q.", agent.pattern), 0)
	case blocked:
		e.route(RouteRefused, reason.Blocked.String(), "Refused with 429: a rule blocks this client.", 0)
	case unshown != "":
		e.route(RouteRefused, reason.Redacted.String(), "Refused with 403: a rule shows this client a redacted view, which "+unshown+".", 0)
	case g.restricts && !readsOnly(x.request) && g.restrictsSomebody(x, readOnlyOf):
		e.route(RouteRefused, reason.ReadOnly.String(), "Refused with 403: a rule lets this client read only.", 0)
	case isSelfReview(x.request) && x.settings.SelfReviews == Yes:
		e.route(RouteUnknown, "", "Answered from memory if the same user was answered the same question within seconds, else by the upstream, once for all who wait.", 1)
	case !isRead(x) && x.info.IsWrite():
		e.route(string(fromUpstream), "", "Forwarded: writes always are. The upstream decides whether it is allowed.", 1)
	case !isRead(x):
		e.route(string(fromUpstream), "", "Forwarded: it is no read of a resource. The upstream decides whether it is allowed.", 1)
	default:
		e.read(ctx)
	}
}

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

// forwardedFor is the route of a read that the cache does not answer.
func (e *explaining) forwardedFor(why reason.Forward) {
	e.route(string(fromUpstream), why.String(), "Forwarded. "+why.Entry().When, 1)
}

func (e *explaining) read(ctx context.Context) {
	g, x := e.g, e.x
	gvr := schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
	if _, known := g.Resources.Known(gvr); !known && ambiguity(x) == reason.NotForwarded {
		e.forwardedFor(reason.UnknownResource) // to look it up could read discovery anew
		return
	}
	q, why := g.qualify(x)
	if why != reason.NotForwarded {
		e.forwardedFor(why)
		return
	}
	e.permission(ctx)
	if e.PermissionKnown && !e.Allowed {
		e.route(RouteRefused, reason.Forbidden.String(), "Refused with 403: the upstream does not allow it.", 0)
		return
	}
	if err := q.setShard(&g.shards); err != nil {
		e.route(RouteRefused, "", "Refused: "+err.Error(), 0)
		return
	}
	if err := q.setQuery(x.info); err != nil {
		e.route(RouteRefused, "", "Refused: "+err.Error(), 0)
		return
	}
	e.find(q)
	synced := e.Collection != nil && e.Collection.State.Phase == cache.Synced
	switch {
	case x.info.Verb == "watch":
		e.watch(synced)
	case q.mostRecent() && !q.cacheOnly() && !g.Manager.Prompt() && x.mode(q.res) == ModeStrict:
		e.strict(q, synced)
	case q.mostRecent():
		e.session(q, synced)
	default:
		e.version(q, synced)
	}
}

// permission looks whether the decision is known.
func (e *explaining) permission(ctx context.Context) {
	d, ok := e.g.Authorizer.Remembered(ctx, e.x.subject.User, identity.AttributesOf(e.x.info))
	e.PermissionKnown, e.Allowed = ok, ok && d.Allowed
	switch {
	case !ok:
		e.PermissionText = "not known here: the upstream is asked by a SubjectAccessReview, and its answer remembered"
	case d.Allowed:
		e.PermissionText = "allowed, as was decided last"
	default:
		e.PermissionText = "not allowed, as was decided last"
	}
	if ok && d.Reason != "" {
		e.PermissionText += ": " + d.Reason
	}
	e.step("permission", "%s", e.PermissionText)
}

// find looks for the collection, without using it.
func (e *explaining) find(q readQuery) {
	encoding := encodingOf(q.res, q.rep)
	for _, c := range e.g.Manager.Status() {
		if c.Resource == q.res.GroupVersionResource && c.Encoding == encoding {
			e.Collection = &c
		}
	}
	if e.Collection == nil {
		e.step("collection", "none of %s (%s) yet", q.res.GroupResource(), encoding)
		return
	}
	e.step("collection", "%s (%s) is %s, with %d objects at version %d", q.res.GroupResource(), encoding, e.Collection.State.Phase, e.Collection.Objects, e.Collection.RV)
}

func (e *explaining) watch(synced bool) {
	if synced {
		e.Cost = "Nothing for the upstream: all watches share the collection's."
		e.route(string(fromCache), "", "Served from the cache, which has one watch for all, from any version that it remembers.", 0)
		return
	}
	e.starting("Served from the cache once the collection is complete.")
}

// starting is the route of a read that waits for its collection.
func (e *explaining) starting(text string) {
	if e.Collection != nil && e.Collection.State.Phase != cache.Starting {
		e.route(RouteUnknown, "", "The collection is "+e.Collection.State.Phase.String()+": the answer comes from the cache with its age, or of the upstream, as the settings and the upstream's state say.", 0)
		return
	}
	e.Cost = "One list and one watch at the upstream, for all who read this from then on."
	e.route(string(fromCache), "", text, 2)
}

func (e *explaining) strict(q readQuery, synced bool) {
	if synced && e.Info.Verb == "list" && revalidates(q.res, q.rep) {
		e.Cost = "The names and versions of the objects, in metadata alone, shared by all who ask meanwhile."
		e.route(string(fromRevalidated), "", "The read asks for the most recent state, and its mode is strict: the upstream names the versions that are current, and the cache has their bytes.", 1)
		return
	}
	e.Cost = "One request, which all who ask the same meanwhile share."
	e.route(string(fromCollapsed), "", "The read asks for the most recent state, and its mode is strict: the upstream answers, once for all who ask the same at the time. A resourceVersion, or the mode session, would have the cache answer.", 1)
}

func (e *explaining) session(q readQuery, synced bool) {
	switch {
	case synced && e.g.Manager.Prompt():
		e.route(string(fromCache), "", "Answered from the cache as soon as it holds what the store held when the request came.", 0)
	case synced:
		e.route(string(fromCache), "", "Answered from the cache, in the mode session, as soon as it holds every write made through this gateway.", 0)
	case q.cacheOnly():
		e.starting("Answered from the cache once the collection is complete.")
	default:
		e.starting("Answered from the cache once the collection is complete, or by the upstream if that fails.")
	}
}

func (e *explaining) version(q readQuery, synced bool) {
	rv, _ := strconv.ParseUint(q.options.ResourceVersion, 10, 64)
	switch {
	case !synced:
		e.starting("Answered from the cache once the collection is complete.")
	case q.options.Continue != "":
		e.route(string(fromCache), "", "The next part of a list: answered from the cache if it still holds that version, else by the upstream.", 0)
	case rv > e.Collection.RV:
		e.route(RouteUnknown, "", "The version is above what the cache holds now: it waits a moment for it, and else the upstream is asked.", 0)
	case q.options.ResourceVersionMatch == "Exact" && rv < e.Collection.Watches.Oldest:
		e.forwardedFor(reason.VersionGone)
	default:
		e.route(string(fromCache), "", "Answered from the cache, which holds a version that is new enough.", 0)
	}
}

// describe has each setting by its name; those that nothing says are left out.
func (s *Settings) describe() map[string]string {
	all := make(map[string]string)
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() {
			name := v.Type().Field(i).Name
			all[strings.ToLower(name[:1])+name[1:]] = fmt.Sprint(field.Interface())
		}
	}
	return all
}

// String says it in a word.
func (c Choice) String() string { return [...]string{"", "yes", "no"}[c] }
