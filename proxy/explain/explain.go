package explain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// Question describes a request to explain.
type Question struct {
	Method string
	// Target is the path with its query, or a URL.
	Target string `json:"path"`
	// User and Groups identify the client. Without Groups, the groups of a cached identity of that
	// name are used, or else the default groups.
	User              string
	Groups            []string
	UserAgent, Accept string
}

// Explanation describes how a request would be served now, as far as that is known without sending
// anything to the upstream.
type Explanation struct {
	Request Request `json:"request"`
	// Route is a response.Source, RouteRejected or RouteUnknown.
	Route string `json:"route"`
	// Why is the label of the reason, "" if there is none. Text describes the route in a sentence
	// or two.
	Why        string `json:"reason,omitempty"`
	Text       string `json:"text"`
	Permission `json:"permission"`
	// Visible describes which namespaces a list or watch of all namespaces shows instead of a rejection,
	// nil if it does not.
	Visible *Visible `json:"visible,omitempty"`
	// Settings are the settings of the request, each with its rule.
	Settings []policy.DecidedSetting `json:"settings"`
	// Collection is the collection that would be read, nil if there is none.
	Collection   *Collection `json:"collection,omitempty"`
	UpstreamCost `json:"cost"`
	Steps        []Step `json:"steps"`
}

// Request is the parsed request.
type Request struct {
	Verb        string `json:"verb"`
	IsResource  bool   `json:"isResource"`
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
}

// Permission is the decision, if it is known, and a text with its origin, or with the way
// it would be made.
type Permission struct {
	PermissionKnown bool   `json:"known"`
	Allowed         bool   `json:"allowed"`
	PermissionText  string `json:"text"`
}

// UpstreamCost is the number of requests that the upstream would get, without reviews. Cost
// describes it.
type UpstreamCost struct {
	Cost             string `json:"text"`
	UpstreamRequests int    `json:"upstreamRequests"`
}

// Collection is the state of a collection.
type Collection struct {
	State   string `json:"state"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// Step is one on the way of a request.
type Step struct {
	Step string `json:"step"`
	Text string `json:"text"`
}

// Visible is which namespaces are shown of all.
type Visible struct {
	// Known is true if the user's namespaces are known; Namespaces is then their number.
	Known      bool `json:"known"`
	Namespaces int  `json:"namespaces"`
	// Rule is the rule that shows them. Text describes the result.
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// Routes besides the sources of responses.
const (
	RouteRejected = "rejected"
	RouteUnknown  = "unknown"
)

// Errors of Explain.
var (
	errNoMethod = errors.New("the method must be one of HTTP, such as GET")
	errNoTarget = errors.New("the path must be one of the API, such as /api/v1/namespaces/default/pods?limit=500")
)

// maxQuestionTarget bounds a path, in bytes.
const maxQuestionTarget = 8 << 10

// Gateway is the parts of a gateway that an explanation looks at. It changes none of them.
type Gateway struct {
	Manager       *cache.Manager
	Resources     Resources
	Authenticator *authn.Authenticator
	Authorizer    *authz.Authorizer
	Blocked       *policy.Blocked
	Visible       *visible.Finder
	Rejections    *consistency.Rejections
	Coalescer     *consistency.Coalescer
	// Discovered and OpenAPI may be nil if Gather never adds their documents.
	Discovered func() discovery.Documents
	OpenAPI    *openapi.Documents
	// Gather adds what the gateway knows about a request without sending, waiting or paying.
	Gather func(*route.Facts, *policy.Compiled, route.Resources)
}

// Resources finds the resources that may be served from the cache.
type Resources interface {
	route.Resources
	Known(gvr schema.GroupVersionResource) (schema.GroupResource, bool)
}

// Explain describes how a request would be served under a policy. It has no side effects and reveals
// nothing about objects. An error is about the question.
func Explain(ctx context.Context, g *Gateway, p *policy.Compiled, q Question) (*Explanation, error) {
	r, err := q.request()
	if err != nil {
		return nil, err
	}
	x := &route.Facts{Request: r, Info: r.Info(), Reading: new(route.Reading)}
	i := x.Info
	e := &explaining{g: g, x: x, policy: p, Explanation: &Explanation{Request: Request{
		i.Verb, i.IsResourceRequest, i.APIGroup, i.APIVersion, i.Resource, i.Subresource, i.Namespace, i.Name,
	}}}
	e.parsed()
	e.identify(q)
	x.Pretty = x.Info.Pretty(q.UserAgent)
	x.Settings = p.Decide(x.Subject.User, q.UserAgent, x.Info)
	e.Settings = p.Deciders(x.Subject.User, q.UserAgent, x.Info)
	e.decide(ctx)
	return e.Explanation, nil
}

// request makes a request of a question.
func (q *Question) request() (*api.Request, error) {
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
	return r, nil
}

// explaining builds an Explanation.
type explaining struct {
	*Explanation
	g      *Gateway
	policy *policy.Compiled
	x      *route.Facts
	// c is the collection that would be read, nil if none is complete.
	c *cache.Collection
	// status is the status of the collection that would be read, nil if there is none.
	status *cache.CollectionStatus
}

func (e *explaining) step(name, format string, args ...any) {
	e.Steps = append(e.Steps, Step{name, fmt.Sprintf(format, args...)})
}

// rule returns the rule that decides a setting, in words.
func (e *explaining) rule(setting string) string {
	for _, s := range e.Settings {
		if s.Name == setting && s.Rule != "" {
			return s.Rule
		}
	}
	return "a rule"
}

func (e *explaining) parsed() {
	i := e.x.Info
	if !i.IsResourceRequest {
		e.step("parsed", "%s of the path %s, which is no resource", i.Verb, api.Brief(i.Path))
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

// identify determines the client.
func (e *explaining) identify(q Question) {
	known := e.g.Authenticator.CachedUser(q.User)
	switch {
	case q.User == "":
		known = authn.NewUser(&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}})
		e.step("identity", "none: a request without credentials, which is %s where anonymous requests are allowed", user.Anonymous)
	case len(q.Groups) > 0 || known == nil:
		groups := append(append([]string{}, q.Groups...), user.AllAuthenticated)
		if namespace, _, err := serviceaccount.SplitUsername(q.User); err == nil {
			groups = append(serviceaccount.MakeGroupNames(namespace), groups...)
		}
		known = authn.NewUser(&user.DefaultInfo{Name: q.User, Groups: groups})
		e.step("identity", "%s with the groups %s, as they are given here", q.User, strings.Join(groups, ", "))
	default:
		e.step("identity", "%s with the groups %s, as cached for its credential", known.GetName(), strings.Join(known.GetGroups(), ", "))
	}
	e.x.Subject = &authn.Subject{Identity: &authn.Identity{User: known, Source: authn.BearerToken}, User: known}
}
