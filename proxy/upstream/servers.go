package upstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/apiservers"
)

// servers are the API servers of one cluster. Each is looked at by itself; requests are
// spread over those that are ready, but for the gateway's own feeds, which go to one that
// is preferred, and stays so while it is ready. It is safe for concurrent use.
type servers struct {
	c       *Client
	list    apiservers.List
	factory *factory
	// name is what certificates must be good for, "" for each server's own host.
	name     string
	resolver Resolver

	all       atomic.Pointer[[]*apiServer] // replaced, never modified
	preferred atomic.Pointer[apiServer]
	turn      atomic.Uint32
	seed      maphash.Seed
	missed    chan struct{} // a server is away, which may have got another address

	mu sync.Mutex // held while the servers, or the preferred one, change
}

var (
	errMoved     = errors.New("the feeds go to another API server")
	errNoServers = errors.New("no API server of the cluster is known")
	errLate      = errors.New("another API server waited for the version in vain")
	errForgotten = fmt.Errorf("%w on a connection that there was", errSilent)
)

// openServers makes what it takes to talk to several servers.
func (c *Client) openServers(f *factory, list apiservers.List, names Resolver) error {
	if c.base.Path != "" {
		return fmt.Errorf("upstream servers: the kubeconfig's server has a path, %s, and several servers are asked without one", c.base.Path)
	}
	if names == nil {
		names = net.DefaultResolver
	}
	s := &servers{c: c, list: list, factory: f, seed: maphash.MakeSeed(), resolver: names, missed: make(chan struct{}, 1)}
	s.all.Store(new([]*apiServer))
	c.servers = s
	c.life.probe = s.lookAll
	if err := c.openBalanced(f); err != nil {
		return err
	}
	switch {
	case list.Slices:
		if f.own.TLS.Insecure || c.base.Scheme != "https" {
			// Who may write EndpointSlices would be sent all credentials.
			return errors.New("upstream servers: endpointslices need a kubeconfig whose server is verified, with https and without insecure-skip-tls-verify")
		}
		s.name = c.base.Hostname()
		if err := s.set([]endpoint{{c.base, true}}); err != nil {
			return err
		}
		c.spawn(s.followSlices)
		return nil
	case list.Name != "":
		s.name = list.Name
		if err := s.resolve(c.ctx); err != nil {
			c.log.Warn("the API servers' name cannot be resolved yet", "name", s.name, "error", err)
		}
		c.spawn(s.followName)
		return nil
	}
	var found []endpoint
	for _, u := range list.URLs {
		found = append(found, endpoint{u, false})
	}
	return s.set(found)
}

// base is where requests go that name no server.
func baseOf(list *apiservers.List, kubeconfig *url.URL) *url.URL {
	base := *kubeconfig
	switch {
	case len(list.URLs) > 0:
		base.Scheme, base.Host = list.URLs[0].Scheme, list.URLs[0].Host
	case list.Name != "":
		base.Host = list.Name + ":" + list.Port
	}
	return &base
}

// openBalanced makes the client's transports, which choose a server.
func (c *Client) openBalanced(f *factory) error {
	for i, p := range c.styles() {
		rt := http.RoundTripper(&balanced{set: c.servers, style: i, feed: p.rt == &c.feed, long: !p.style.http1})
		if !p.style.anonymous {
			var err error
			if rt, err = f.wrap(rt); err != nil {
				return err
			}
		}
		*p.rt = rt
	}
	return nil
}

// endpoint is where a server is.
type endpoint struct {
	url   *url.URL
	spare bool
}

// set makes the servers those that were found.
func (s *servers) set(found []endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := *s.all.Load()
	var next []*apiServer
	for _, e := range found[:min(len(found), apiservers.Most)] {
		i := slices.IndexFunc(before, func(b *apiServer) bool { return *b.base == *e.url && b.spare == e.spare })
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
	s.all.Store(&next)
	for _, b := range before {
		if !slices.Contains(next, b) {
			b.leave()
		}
	}
	s.preferLocked()
	return nil
}

// open makes a server.
func (s *servers) open(e endpoint) (*apiServer, error) {
	f := *s.factory
	f.base = e.url
	if f.own.TLS.ServerName == "" && s.name != "" {
		f.own.TLS.ServerName = s.name
	}
	one := &apiServer{
		set: s, base: e.url, host: e.url.Host, spare: e.spare,
		log: s.c.log.With("server", e.url.Host), kick: make(chan struct{}, 1),
		rank: maphash.String(s.seed, e.url.Host), counts: s.c.metrics.servers.of(e.url.Host),
	}
	if s.name != "" {
		one.host = s.c.base.Host
	}
	one.mu.attempts = make(map[*attempt]struct{})
	one.counts.up.Set(1)
	f.dead, one.dead.ask = &one.dead, one.look
	for _, p := range s.c.styles() {
		if p.style.track != nil {
			p.style.track = s.c.contacts.track(&one.dead)
		}
		pool, err := f.pool(p.style)
		if err != nil {
			return nil, err
		}
		one.pools = append(one.pools, pool)
	}
	ctx, retire := context.WithCancel(s.c.ctx)
	one.retire = retire
	s.c.spawn(func() { one.watch(ctx) })
	return one, nil
}

// pools are those of all servers.
func (s *servers) pools() []*pool {
	var pools []*pool
	for _, one := range *s.all.Load() {
		pools = append(pools, one.pools...)
	}
	return pools
}

// choose returns the server for a request, nil when there is none that was not tried.
// One from which nothing is heard is none.
func (s *servers) choose(b *balanced, preferred bool, tried []*apiServer) *apiServer {
	at := s.c.now().UnixNano()
	if p := s.preferred.Load(); preferred && p != nil && p.now(at) <= unready && !slices.Contains(tried, p) {
		return p
	}
	all := *s.all.Load()
	turn := int(s.turn.Add(1))
	var best *apiServer
	var bestClass int
	var bestLoad float64
	for i := range all {
		one := all[(turn+i)%len(all)]
		class := one.class(at)
		if standing(one.is.Load()) == silent || slices.Contains(tried, one) || best != nil && class > bestClass {
			continue
		}
		load := one.load(b.long, at)
		if best == nil || class < bestClass || load < bestLoad {
			best, bestClass, bestLoad = one, class, load
		}
	}
	return best
}

// class is how a server compares with others: one of a lower class is always taken
// before it.
func (s *apiServer) class(at int64) int {
	class := 2 * int(s.now(at))
	if s.spare {
		class++
	}
	return class
}

// prefer sees to it that the server for the feeds is one that is ready.
func (s *servers) prefer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preferLocked()
}

func (s *servers) preferLocked() {
	all, held := *s.all.Load(), s.preferred.Load()
	at := s.c.now().UnixNano()
	var best *apiServer
	for _, one := range all {
		if best == nil || one.better(best, at) {
			best = one
		}
	}
	there := held != nil && slices.Contains(all, held)
	if there && held.class(at) <= best.class(at) {
		return
	}
	s.preferred.Store(best)
	if held != nil {
		held.counts.preferred.Set(0) // which may be those of best
	}
	if best != nil {
		best.counts.preferred.Set(1)
		s.c.log.Info("feeds go to an API server", "server", best.base.Host)
	}
	if there {
		held.cut(errMoved, func(a *attempt) bool { return a.feed })
	}
}

// better reports whether feeds should rather go to s than to other: one that has been
// ready for longer knows more of the past.
func (s *apiServer) better(other *apiServer, at int64) bool {
	class, classOther := s.class(at), other.class(at)
	since, sinceOther := s.since.Load(), other.since.Load()
	return class < classOther || class == classOther && (since < sinceOther || since == sinceOther && s.rank < other.rank)
}

// lost is called while a server is away: when all are, the cluster is. Servers that refuse
// connections do so at once, and can be tried.
func (s *servers) lost() {
	quick := false
	for _, one := range *s.all.Load() {
		switch standing(one.is.Load()) {
		case down:
			quick = true
		case silent:
		default:
			return
		}
	}
	s.c.life.lookout.slowly.Store(!quick)
	s.c.life.depart()
}

// CheckServers returns an error when none of several API servers can be reached.
func (c *Client) CheckServers() error {
	if c.servers == nil {
		return nil
	}
	all := *c.servers.all.Load()
	if len(all) == 0 {
		return errNoServers
	}
	var away []string
	for _, one := range all {
		is := standing(one.is.Load())
		if is < down {
			return nil
		}
		away = append(away, one.base.Host+" is "+is.String())
	}
	return errors.New(strings.Join(away, ", "))
}

// lookAll looks at all servers.
func (s *servers) lookAll() {
	for _, one := range *s.all.Load() {
		one.look()
	}
}

// patience is for how long what may not be sent again waits for a silent server.
func (s *servers) patience() time.Duration {
	return max(0, s.c.limits.SilenceTimeout-s.c.limits.ServerSilence)
}

// addresses are the servers in messages.
func (s *servers) addresses() string {
	var names []string
	switch l := &s.list; {
	case l.Slices:
		return "the endpoints of the Service kubernetes, found through " + s.c.base.Redacted()
	case l.Name != "":
		return "the addresses of " + s.c.base.Redacted()
	default:
		for _, u := range l.URLs {
			names = append(names, u.Redacted())
		}
	}
	return strings.Join(names, ", ")
}
