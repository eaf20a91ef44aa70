package proxy

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

const (
	// discoveryFor is the longest time that a discovery response is cached. Definitions and
	// APIServices, which change it, are watched; new releases and servers behind the upstream are
	// not.
	discoveryFor = 5 * time.Minute
	// discoverySettles is how long after a change of a definition or APIService no response is
	// cached, because the API servers notice the change one by one.
	discoverySettles = 10 * time.Second
)

// discovery responds to discovery and version requests in session mode with a recent response to
// the same user, which may be a 404. A change of a definition or an APIService drops the cached
// responses, and changes made through this gateway are waited for. If discovery returns nil, the
// request must be forwarded.
func (g *Gateway) discovery(ctx context.Context, x *exchange) *api.Response {
	definitions, services := g.followedOf(discovery.CustomResourceDefinitions), g.followedOf(discovery.APIServices)
	if definitions == nil || services == nil || !g.holds(ctx, x, definitions) || !g.holds(ctx, x, services) {
		return nil
	}
	x.Unreachable = g.isUnreachable()
	age := max(route.AgeOf(definitions, x.Unreachable), route.AgeOf(services, x.Unreachable)) // as old as the older source of invalidations
	x.Age, x.Unconfirmed = age, definitions.Unconfirmed()
	if _, expired := x.Expired(); expired {
		return nil
	}
	servers := services.Snapshot()
	if x.Info.IsResourceRequest && servers.Get(x.Info.APIVersion+"."+x.Info.APIGroup) != nil {
		return nil // there is somebody who serves the group version, and may know more resources than we do
	}
	from, most, limiter := g.memory.responses, maxSavedResponse, (*inflight.Limiter)(nil)
	if isRoot(x.Request.Path) {
		from, most, limiter = g.memory.documents, maxSavedDocument, g.memory.documentSlots
	}
	r := x.Request
	key := consistency.Key{ // in strings of its own: the request may be over when an answer comes that others wait for
		Path: strings.Clone(r.RawPath), Query: strings.Clone(r.RawQuery), Accept: strings.Clone(r.Header.Get("Accept")), AcceptEncoding: strings.Clone(r.Header.Get("Accept-Encoding")), Pretty: x.Pretty,
	}
	if g.forwards.collapser.KnownLarge(key) {
		return nil
	}
	question := responses.Digest(x.Request, nil, definitions.Snapshot().Content(), servers.Content())
	resp := g.cachedOrFetched(ctx, x, from, question, func(ctx context.Context) (*responses.Response, error) {
		if limiter != nil {
			if !limiter.Acquire(x.user(), 1) {
				return nil, errNotShareable
			}
			defer limiter.Release(x.user(), 1) // the response owns the slot from here
		}
		resp, err := g.fetchForClient(ctx, x, nil, most)
		if errors.Is(err, response.ErrTooLarge) {
			g.forwards.collapser.RememberLarge(key)
		}
		if err != nil {
			return nil, err
		}
		resp.Slots, resp.User = limiter, x.user()
		settled := !definitions.Mux().Recent(1, int64(discoverySettles)) && !services.Mux().Recent(1, int64(discoverySettles))
		resp.Keep, resp.Allowed, resp.For = settled && isSameForUser(x, resp), true, discoveryFor
		return resp, nil
	})
	if resp != nil && x.source == response.FromCache {
		g.markStale(resp, age)
	}
	return resp
}

// cachesDiscovery reports whether discovery responses are cached for this client and request.
func (g *Gateway) cachesDiscovery(x *route.Facts) bool {
	return x.ClientMode() == policy.ModeSession && !g.Manager.IsImmediate() && isPlainGet(x.Request) && g.memory.responses.Covers(x.Subject) &&
		g.followedOf(discovery.CustomResourceDefinitions) != nil && g.followedOf(discovery.APIServices) != nil
}

// isSameForUser reports whether a response is the same for its user until something changes.
func isSameForUser(x *exchange, r *responses.Response) bool {
	switch {
	case r.Status == 404:
		return true
	case r.Status != 200 || x.Info.IsResourceRequest:
		return false
	}
	// The other form depends on the client's address.
	return x.Request.Path != "/api" || strings.Contains(r.Header.Get("Content-Type"), "as=APIGroupDiscoveryList")
}

// isRoot reports whether a path has the documents of all groups.
func isRoot(path string) bool { return path == "/api" || path == "/apis" }

// followedOf returns the collection of a resource that package discovery follows, nil if there is
// none. It starts nothing.
func (g *Gateway) followedOf(gvr schema.GroupVersionResource) *cache.Collection {
	if _, known := g.Resources.Known(gvr); !known {
		return nil
	}
	res, ok := g.Resources.Lookup(gvr)
	if !ok {
		return nil
	}
	return g.Manager.PeekCollection(res, api.JSON)
}

// isPlainGet reports whether a request is a GET whose response depends on nothing that
// responses.Digest omits.
func isPlainGet(r *api.Request) bool {
	return r.Method == "GET" && r.RawPath == r.Path && r.Upgrade == "" && r.ContentLength == 0 && !r.Header.Has("If-None-Match")
}

// isDiscovery reports whether a GET reads the upstream's version, its groups, or the resources of
// one.
func isDiscovery(r *api.Request) bool {
	if r.Path == "/version" || r.Path == "/apis" {
		return true
	}
	if r.Path == "/api" {
		return strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	}
	rest, ofGroups := strings.CutPrefix(r.Path, "/apis/")
	if !ofGroups {
		version, ofCore := strings.CutPrefix(r.Path, "/api/")
		return ofCore && version != "" && !strings.Contains(version, "/")
	}
	group, version, versioned := strings.Cut(rest, "/")
	return group != "" && (!versioned || version != "" && !strings.Contains(version, "/"))
}
