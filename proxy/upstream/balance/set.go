package balance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Set is the API servers of one cluster. It is safe for concurrent use.
type Set struct {
	Options
	name      string                    // that certificates must be valid for, "" for each server's own host
	servers   atomic.Pointer[[]*Server] // replaced, never modified
	preferred atomic.Pointer[Server]
	turn      atomic.Uint32

	mu sync.Mutex // held while the servers, or the preferred one, change
}

// ErrNoServers means that there is no server to ask.
var ErrNoServers = errors.New("no API server of the cluster is known")

var errMoved = errors.New("the feeds go to another API server")

// New returns a Set that finds its servers when it is started.
func New(o Options) (*Set, error) {
	if o.Base.Path != "" {
		return nil, fmt.Errorf("upstream servers: the kubeconfig's server has a path, %s, and several servers are asked without one", o.Base.Path)
	}
	if o.List.Slices && (o.Factory.Insecure() || o.Base.Scheme != "https") {
		// A user who may write EndpointSlices would receive all credentials.
		return nil, errors.New("upstream servers: endpointslices need a kubeconfig whose server is verified, with https and without insecure-skip-tls-verify")
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	s := &Set{Options: o}
	s.servers.Store(new([]*Server))
	return s, nil
}

// BaseOf returns where requests go that name no server.
func BaseOf(list *List, kubeconfig *url.URL) *url.URL {
	base := *kubeconfig
	switch {
	case len(list.URLs) > 0:
		base.Scheme, base.Host = list.URLs[0].Scheme, list.URLs[0].Host
	case list.Name != "":
		base.Host = list.Name + ":" + list.Port
	}
	return &base
}

// Servers returns the servers there are now.
func (s *Set) Servers() []*Server { return *s.servers.Load() }

// Pools returns the pools of all servers.
func (s *Set) Pools() (pools []*pool.Pool) {
	for _, one := range s.Servers() {
		pools = append(pools, one.pools...)
	}
	return pools
}

// CheckAll asks for a check of all servers soon.
func (s *Set) CheckAll() {
	for _, one := range s.Servers() {
		one.check()
	}
}

// Reachable returns an error when none of the servers can be reached.
func (s *Set) Reachable() error {
	all := s.Servers()
	if len(all) == 0 {
		return ErrNoServers
	}
	var down []string
	for _, one := range all {
		standing := one.Standing()
		if standing < health.Down {
			return nil
		}
		down = append(down, one.url.Host+" is "+standing.String())
	}
	return errors.New(strings.Join(down, ", "))
}

// String names the servers in messages.
func (s *Set) String() string {
	switch l := &s.List; {
	case l.Slices:
		return "the endpoints of the Service kubernetes, found through " + s.Base.Redacted()
	case l.Name != "":
		return "the addresses of " + s.Base.Redacted()
	}
	var names []string
	for _, u := range s.List.URLs {
		names = append(names, u.Redacted())
	}
	return strings.Join(names, ", ")
}

// set makes the servers those that were found.
func (s *Set) set(found []endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.Servers()
	var next []*Server
	for _, e := range found[:min(len(found), apiservers.Most)] {
		i := slices.IndexFunc(before, func(b *Server) bool { return *b.url == *e.url && b.spare == e.spare })
		if i >= 0 {
			next = append(next, before[i])
			continue
		}
		one, err := s.open(e)
		if err != nil {
			return err
		}
		next = append(next, one)
	}
	s.servers.Store(&next)
	for _, b := range before {
		if !slices.Contains(next, b) {
			b.retire()
		}
	}
	s.preferLocked()
	return nil
}

// open returns a server that is checked from now on.
func (s *Set) open(e endpoint) (*Server, error) {
	one := &Server{
		endpoint: e, set: s, host: e.url.Host, log: s.Log.With("server", e.url.Host),
		rank: rand.Uint64(), metrics: s.Metrics.of(e.url.Host),
		checker: checker{kick: make(chan struct{}, 1)},
	}
	if s.name != "" {
		one.host = s.Base.Host
	}
	one.mu.attempts = make(map[*attempt]struct{})
	one.metrics.up.Set(1)
	one.health.Probe = one.check
	f := s.Factory.At(e.url, s.name, &one.health)
	for _, style := range s.Styles {
		p, err := f.Pool(style)
		if err != nil {
			return nil, err
		}
		one.pools = append(one.pools, p)
	}
	ctx, stop := context.WithCancel(s.Context)
	one.checker.stop = stop
	s.Spawn(func() { one.watch(ctx) })
	return one, nil
}

// choose returns the server for a request, nil when there is none that was not tried. An
// unresponsive server is not chosen.
func (s *Set) choose(long, preferred bool, tried []*Server) *Server {
	now := s.Health.Now()
	if p := s.preferred.Load(); preferred && p != nil && p.Standing() <= health.NotReady && !slices.Contains(tried, p) {
		return p
	}
	all := s.Servers()
	turn := int(s.turn.Add(1))
	var best *Server
	var bestClass int
	var bestLoad float64
	for i := range all {
		one := all[(turn+i)%len(all)]
		class := one.class()
		if one.Standing() == health.Unresponsive || slices.Contains(tried, one) || best != nil && class > bestClass {
			continue
		}
		load := one.load(long, now)
		if best == nil || class < bestClass || load < bestLoad {
			best, bestClass, bestLoad = one, class, load
		}
	}
	return best
}

// prefer chooses another server for the feeds if theirs is not ready.
func (s *Set) prefer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preferLocked()
}

func (s *Set) preferLocked() {
	all, held := s.Servers(), s.preferred.Load()
	var best *Server
	for _, one := range all {
		if best == nil || one.isBetter(best) {
			best = one
		}
	}
	present := held != nil && slices.Contains(all, held)
	if present && held.class() <= best.class() {
		return
	}
	s.preferred.Store(best)
	if held != nil {
		held.metrics.preferred.Set(0) // which may be those of best
	}
	if best != nil {
		best.metrics.preferred.Set(1)
		s.Log.Info("feeds go to an API server", "server", best.url.Host)
	}
	if present {
		held.cancel(errMoved, func(a *attempt) bool { return a.isFeed() })
	}
}

// reportDown is called while a server is down: when all are, the cluster is. Servers that refuse
// connections do so at once, and can be tried.
func (s *Set) reportDown() {
	rejected := false
	for _, one := range s.Servers() {
		switch one.Standing() {
		case health.Down:
			rejected = true
		case health.Unresponsive:
		default:
			return
		}
	}
	s.Health.NoneReachable(rejected)
}

// forget removes the metrics of a server that is retired.
func (s *Set) forget(retired *Server) {
	for _, other := range s.Servers() {
		if other.url.Host == retired.url.Host {
			return // it is there again
		}
	}
	s.Metrics.forget(retired.url.Host)
}
