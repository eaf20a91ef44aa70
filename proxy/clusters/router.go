package clusters

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
)

// Router is the handler of several clusters. It is safe for concurrent use.
type Router struct {
	prefix   string // "/clusters/"
	health   *healthz.Health
	rejected *reason.Counter
	// short and long have the slots for requests of all clusters. Their users are the clusters.
	short, long *inflight.Limiter
	routes      atomic.Pointer[routes]
}

// RouterOptions are the settings of a Router.
type RouterOptions struct {
	// Prefix precedes the name of a cluster in a path. It begins and ends with a slash.
	Prefix string
	// Health is the health of the gateway as a whole.
	Health *healthz.Health
	// InFlight is the most requests at a time that are not long-running, over all clusters;
	// LongRunning the most watches, log follows and upgrades. A cluster gets at most three quarters
	// of them. A cluster without requests in flight always gets a slot, so the limits may be exceeded
	// by the number of clusters. 0 means no limit.
	InFlight, LongRunning int64
	// Registerer registers the metrics; it may be nil.
	Registerer prometheus.Registerer
}

// Route determines which requests are for a cluster.
type Route struct {
	// Hosts are host names in lower case, without port.
	Hosts []string
	// PathPrefix is true if a path may name the cluster, too.
	PathPrefix bool
	*Target
}

// Target is a cluster that serves requests until Retire.
type Target struct {
	name    string
	prefix  string // of its paths, if a path names it
	handler api.Handler

	mu struct {
		sync.Mutex
		open    int
		retired chan struct{} // closed when open is 0; nil before Retire
	}
}

// routes are the targets by host and by name.
type routes struct{ hosts, names map[string]*Target }

// NewRouter returns a Router without routes.
func NewRouter(o RouterOptions) *Router {
	r := &Router{prefix: o.Prefix, health: o.Health, rejected: reason.NewCounter(o.Registerer)}
	over := inflight.NewOverloads(o.Registerer, r.rejected)
	r.short = inflight.New(o.InFlight, over.Of("short", "all", reason.AllClustersLimit), over.Of("short", "cluster", reason.ClusterShare))
	r.long = inflight.New(o.LongRunning, over.Of("long", "all", reason.AllClustersLimit), over.Of("long", "cluster", reason.ClusterShare))
	r.short.AdmitFirst, r.long.AdmitFirst = true, true
	inflight.RegisterMetrics(o.Registerer, map[string]*inflight.Semaphore{"all-short": &r.short.Semaphore, "all-long": &r.long.Semaphore})
	r.routes.Store(&routes{})
	return r
}

// NewTarget returns a Target for a Route of r.
func (r *Router) NewTarget(name string, handler api.Handler) *Target {
	return &Target{name: name, prefix: r.prefix + name, handler: handler}
}

// SetRoutes replaces the routes. Requests in flight stay with their target.
func (r *Router) SetRoutes(list []Route) {
	next := &routes{make(map[string]*Target), make(map[string]*Target)}
	for _, route := range list {
		for _, host := range route.Hosts {
			next.hosts[host] = route.Target
		}
		if route.PathPrefix {
			next.names[route.name] = route.Target
		}
	}
	r.routes.Store(next)
}

// SetLimits replaces RouterOptions.InFlight and LongRunning.
func (r *Router) SetLimits(inFlight, longRunning int64) {
	r.short.SetLimit(inFlight)
	r.long.SetLimit(longRunning)
}

// Serve implements api.Handler.
func (r *Router) Serve(ctx context.Context, req *api.Request) *api.Response {
	for {
		target, prefix, rejection := r.find(req)
		switch {
		case rejection != nil:
			return rejection
		case !target.enter():
			continue // the target was retired, so the routes have changed
		}
		if prefix == "" {
			return r.serve(ctx, req, target)
		}
		// The prefix is the same in both: no byte of it is escaped.
		req.Path, req.RawPath = below(req.Path, prefix), below(req.RawPath, prefix)
		if climbs(req.Path) {
			target.leave()
			return r.reject(req, reason.ClusterPath, 400, metav1.StatusReasonBadRequest, "the path leads out of its cluster by dot segments")
		}
		resp := r.serve(ctx, req, target)
		relocate(resp, prefix)
		return resp
	}
}

// serve hands a request to its target, which it has entered.
func (r *Router) serve(ctx context.Context, req *api.Request, to *Target) *api.Response {
	limit := r.limitOf(req)
	if limit != nil && !limit.Acquire(to.name, 1) {
		to.leave()
		return inflight.Rejected()
	}
	leave := func() {
		if limit != nil {
			limit.Release(to.name, 1)
		}
		to.leave()
	}
	served := false
	defer func() {
		if !served {
			leave() // a panic, which the transport contains
		}
	}()
	resp := to.handler.Serve(ctx, req)
	done := resp.Done
	resp.Done = func(n int64, err error) {
		leave()
		if done != nil {
			done(n, err)
		}
	}
	served = true
	return resp
}

// limitOf returns the limiter of a request; nil for health, which is served under any load.
func (r *Router) limitOf(req *api.Request) *inflight.Limiter {
	switch {
	case healthz.IsPath(req.Path):
		return nil
	case req.Info().LongRunning() || req.Upgrade != "":
		return r.long
	}
	return r.short
}

// find returns the cluster that a request is for, and the prefix of the path if that names it. If the
// request is for no cluster, find returns the response.
func (r *Router) find(req *api.Request) (to *Target, prefix string, resp *api.Response) {
	known := r.routes.Load()
	byHost, byServerName := known.hosts[hostname(req.Host)], known.hosts[strings.ToLower(req.ServerName)]
	switch {
	case byHost != nil && byServerName != nil && byHost != byServerName:
		// The names contradict each other. Clients that share a connection between hosts, as browsers
		// do, retry on a new one (RFC 9110, 15.5.20).
		return nil, "", r.reject(req, reason.Misdirected, 421, metav1.StatusReasonUnknown,
			"the Host header and the TLS server name belong to different clusters: retry on a new connection")
	case byHost != nil:
		return byHost, "", nil
	}
	if rest, ok := strings.CutPrefix(req.RawPath, r.prefix); ok {
		name, _, _ := strings.Cut(rest, "/")
		to := known.names[name]
		if to == nil {
			return nil, "", r.unknown(req, "unknown cluster")
		}
		return to, to.prefix, nil
	}
	if byServerName != nil {
		return byServerName, "", nil
	}
	if resp := r.health.Serve(req, false); resp != nil {
		return nil, "", resp
	}
	return nil, "", r.unknown(req, "the gateway serves several clusters, and the request names none")
}

// unknown rejects a request for no cluster. It names none, because the client is not authenticated.
func (r *Router) unknown(req *api.Request, why string) *api.Response {
	return r.reject(req, reason.UnknownCluster, 404, metav1.StatusReasonNotFound,
		fmt.Sprintf("%s: use the path %sNAME or a host name of the cluster", why, r.prefix))
}

func (r *Router) reject(req *api.Request, why reason.Rejection, code int32, kind metav1.StatusReason, message string) *api.Response {
	r.rejected.Count(why)
	err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: kind, Message: message}}
	return api.StatusResponse(err, api.NegotiateStatus(req.Header.Get("Accept"), false))
}

// hostname returns host without port and trailing dot, in lower case.
func hostname(host string) string {
	if strings.IndexByte(host, ':') >= 0 {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// below returns path without the prefix of a cluster.
func below(path, prefix string) string {
	if path = path[len(prefix):]; path == "" {
		return "/"
	}
	return path
}

// climbs reports whether the dot segments of a path lead above its root: a server that resolves them
// would respond for something beside the cluster.
func climbs(path string) bool {
	if !strings.Contains(path, "..") {
		return false
	}
	depth := 0
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// relocate adds the prefix to the path of a redirect.
func relocate(resp *api.Response, prefix string) {
	moved := func(f api.HeaderField) bool {
		return f.Name == "Location" && strings.HasPrefix(f.Value, "/") && !strings.HasPrefix(f.Value, "//")
	}
	i := slices.IndexFunc(resp.Header, moved)
	if i < 0 {
		return
	}
	resp.Header = slices.Clone(resp.Header)
	resp.Header[i].Value = prefix + resp.Header[i].Value
}

// Retire rejects further requests, and returns when those in flight or ctx have ended. Routes must
// not lead to t any more.
func (t *Target) Retire(ctx context.Context) error {
	t.mu.Lock()
	retired := make(chan struct{})
	t.mu.retired = retired
	if t.mu.open == 0 {
		close(retired)
	}
	t.mu.Unlock()
	select {
	case <-retired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a request of t. It reports false if t is retired.
func (t *Target) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.retired != nil {
		return false
	}
	t.mu.open++
	return true
}

func (t *Target) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.open--; t.mu.open == 0 && t.mu.retired != nil {
		close(t.mu.retired)
	}
}
