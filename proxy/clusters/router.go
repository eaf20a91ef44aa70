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

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/reason"
)

// Router is the handler of several clusters: it finds out which one a request is for, and
// hands it on as that cluster's own, whose handler reads it the first time. The Host says
// which (of HTTP/2, the :authority); where it names none of them the path does, by a prefix
// and the cluster's name, and else the name that TLS was asked for. It is safe for
// concurrent use.
type Router struct {
	prefix  string // "/clusters/"
	health  *healthz.Health
	refused *reason.Counter
	// short and long are the places for the requests of all clusters, which clusters share
	// as users share those of one.
	short, long *inflight.Limiter
	routes      atomic.Pointer[routes]
}

// RouterOptions are what a Router has of its own.
type RouterOptions struct {
	// Prefix is what the name of a cluster stands behind in a path; it begins and ends with
	// a slash.
	Prefix string
	// Health answers for the gateway as a whole.
	Health *healthz.Health
	// InFlight is the most requests at a time that are not long-running, over all clusters,
	// LongRunning the most watches, log follows, upgrades; a cluster gets at most three
	// quarters of them. One that has none gets a place all the same, so there may be as many
	// more as there are clusters. 0 means no limit.
	InFlight, LongRunning int64
	Registerer            prometheus.Registerer
}

// Route is how a cluster is asked for.
type Route struct {
	// Hosts are names in lower case, without port.
	Hosts []string
	// PathPrefix tells that a path may name the cluster, too.
	PathPrefix bool
	*Target
}

// Target is a cluster that requests are handed to, until Retire.
type Target struct {
	name    string
	prefix  string // under which its paths are for who came by one
	handler api.Handler

	mu struct {
		sync.Mutex
		open    int
		retired chan struct{} // closed when open is 0; nil before Retire
	}
}

// routes are looked up by host and by name.
type routes struct {
	hosts map[string]*Target
	names map[string]*Target
}

// NewRouter returns a Router that knows no cluster yet.
func NewRouter(o RouterOptions) *Router {
	r := &Router{prefix: o.Prefix, health: o.Health, refused: reason.NewCounter(o.Registerer)}
	over := inflight.NewOverloads(o.Registerer, r.refused)
	r.short = inflight.New(o.InFlight, over.Of("short", "all", reason.AllClustersLimit), over.Of("short", "cluster", reason.ClusterShare))
	r.long = inflight.New(o.LongRunning, over.Of("long", "all", reason.AllClustersLimit), over.Of("long", "cluster", reason.ClusterShare))
	r.short.First, r.long.First = true, true
	inflight.RegisterMetrics(o.Registerer, map[string]*inflight.Semaphore{"all-short": &r.short.Semaphore, "all-long": &r.long.Semaphore})
	r.routes.Store(&routes{})
	return r
}

// NewTarget returns a Target for a Route of r.
func (r *Router) NewTarget(name string, handler api.Handler) *Target {
	return &Target{name: name, prefix: r.prefix + name, handler: handler}
}

// SetRoutes replaces the routes. Requests under way go on where they are.
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

// Retire lets no further request in, and returns when those under way have ended, or ctx has.
// No route may lead to t any more.
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

// enter counts a request in, unless t is retired.
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

// SetLimits replaces RouterOptions.InFlight and LongRunning.
func (r *Router) SetLimits(inFlight, longRunning int64) {
	r.short.SetLimit(inFlight)
	r.long.SetLimit(longRunning)
}

// Serve implements api.Handler.
func (r *Router) Serve(ctx context.Context, req *api.Request) *api.Response {
	for {
		target, prefix, refusal := r.find(req)
		switch {
		case refusal != nil:
			return refusal
		case !target.enter():
			continue // it was retired since, so there are other routes by now
		}
		if prefix == "" {
			return r.serve(ctx, req, target)
		}
		// The prefix is the same in both: no byte of it is escaped.
		req.Path, req.RawPath = below(req.Path, prefix), below(req.RawPath, prefix)
		if climbs(req.Path) {
			target.leave()
			return r.refuse(req, reason.ClusterPath, 400, metav1.StatusReasonBadRequest, "the path leads out of the cluster by its dot segments")
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
	answered := false
	defer func() {
		if !answered {
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
	answered = true
	return resp
}

// limitOf is where a request takes a place; nil for health, which is told under any load.
func (r *Router) limitOf(req *api.Request) *inflight.Limiter {
	switch {
	case healthz.IsPath(req.Path):
		return nil
	case req.Info().LongRunning() || req.Upgrade != "":
		return r.long
	}
	return r.short
}

// find returns the cluster that a request is for, and by which prefix of its path; an answer
// if it is for none.
func (r *Router) find(req *api.Request) (to *Target, prefix string, refusal *api.Response) {
	known := r.routes.Load()
	byHost, byServerName := known.hosts[hostname(req.Host)], known.hosts[strings.ToLower(req.ServerName)]
	switch {
	case byHost != nil && byServerName != nil && byHost != byServerName:
		// Of two clusters' names one was meant. Who shares a connection between hosts, as
		// browsers do, comes again by another (RFC 9110, 15.5.20).
		return nil, "", r.refuse(req, reason.Misdirected, 421, metav1.StatusReasonUnknown,
			"the Host is of another cluster than the name that the TLS connection was made for")
	case byHost != nil:
		return byHost, "", nil
	}
	if rest, ok := strings.CutPrefix(req.RawPath, r.prefix); ok {
		name, _, _ := strings.Cut(rest, "/")
		to := known.names[name]
		if to == nil {
			return nil, "", r.unknown(req, "no such cluster is known here")
		}
		return to, to.prefix, nil
	}
	if byServerName != nil {
		return byServerName, "", nil
	}
	if resp := r.health.Serve(req, false); resp != nil {
		return nil, "", resp
	}
	return nil, "", r.unknown(req, "the gateway stands in front of several clusters, and the request names none")
}

// unknown answers a request for no cluster. It names none either: who asks is not known.
func (r *Router) unknown(req *api.Request, why string) *api.Response {
	return r.refuse(req, reason.UnknownCluster, 404, metav1.StatusReasonNotFound,
		fmt.Sprintf("%s: ask at %sNAME, or by a host name of the cluster", why, r.prefix))
}

func (r *Router) refuse(req *api.Request, why reason.Refusal, code int32, kind metav1.StatusReason, message string) *api.Response {
	r.refused.Count(why)
	err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: kind, Message: message}}
	return api.StatusResponse(err, api.NegotiateStatus(req.Header.Get("Accept"), false))
}

// hostname is the host without port, in lower case and without the dot at its end.
func hostname(host string) string {
	if strings.IndexByte(host, ':') >= 0 {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// below is a path without the prefix of a cluster.
func below(path, prefix string) string {
	if path = path[len(prefix):]; path == "" {
		return "/"
	}
	return path
}

// climbs reports whether a path leads above where it begins: a server that resolves dot
// segments would answer for what is beside the cluster.
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

// relocate puts the prefix, without which the cluster knows its own paths, before the one
// that a redirect names.
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
