package balance

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// List names the API servers of a cluster.
type List = apiservers.List

// Options say which servers there are, and how they are asked.
type Options struct {
	List     List
	Resolver Resolver // of a name in List, nil for net.DefaultResolver
	// Base is where requests go that name no server. Absolute says that they name it in full, as an
	// HTTP proxy in between needs it of those in plain text.
	Base     *url.URL
	Absolute bool
	Agent    string // User-Agent of the gateway's own requests
	// Factory makes the connections to each server, of each of Styles.
	Factory *pool.Factory
	Styles  []pool.Style
	// CheckTransport sends looks at servers, by a connection that nothing else uses, and
	// OnceTransport by new ones.
	CheckTransport, OnceTransport func() http.RoundTripper
	// Get reads JSON from the preferred server, until it is closed.
	Get func(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
	// Health is told of every answer.
	Health *health.Detector
	// ServerCheck is how often each server is looked at. ServerSilence is how long one of them may
	// give no sign of life before what waits for it goes to another, SilenceTimeout how long what
	// may not be sent again waits for it.
	ServerCheck, ServerSilence, SilenceTimeout time.Duration

	Log     *slog.Logger
	Metrics *Metrics
	// Context ends with the upstream's client, and Spawn runs what ends with it; false, when that is
	// over.
	Context context.Context
	Spawn   func(func()) bool
}

// Set is the API servers of one cluster. Each is looked at by itself; requests are
// spread over those that are ready, but for the gateway's own feeds, which go to one that
// is preferred, and stays so while it is ready. It is safe for concurrent use.
type Set struct {
	Options
	// name is what certificates must be good for, "" for each server's own host.
	name string

	all       atomic.Pointer[[]*Server] // replaced, never modified
	preferred atomic.Pointer[Server]
	turn      atomic.Uint32
	seed      maphash.Seed
	missed    chan struct{} // a server is away, which may have got another address

	mu sync.Mutex // held while the servers, or the preferred one, change
}

var (
	errMoved = errors.New("the feeds go to another API server")
	// ErrNoServers says that there is no server to ask.
	ErrNoServers = errors.New("no API server of the cluster is known")
	errLate      = errors.New("another API server waited for the version in vain")
	errForgotten = fmt.Errorf("%w on a connection that there was", health.ErrSilent)
)

// New returns the servers that the options name, none of which is known before Start.
func New(o Options) (*Set, error) {
	if o.Base.Path != "" {
		return nil, fmt.Errorf("upstream servers: the kubeconfig's server has a path, %s, and several servers are asked without one", o.Base.Path)
	}
	if o.List.Slices && (o.Factory.Insecure() || o.Base.Scheme != "https") {
		// Who may write EndpointSlices would be sent all credentials.
		return nil, errors.New("upstream servers: endpointslices need a kubeconfig whose server is verified, with https and without insecure-skip-tls-verify")
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	s := &Set{Options: o, seed: maphash.MakeSeed(), missed: make(chan struct{}, 1)}
	s.all.Store(new([]*Server))
	return s, nil
}

// Start begins to look for servers, and at them.
func (s *Set) Start() error {
	switch {
	case s.List.Slices:
		s.name = s.Base.Hostname()
		if err := s.set([]endpoint{{s.Base, true}}); err != nil {
			return err
		}
		s.Spawn(s.followSlices)
		return nil
	case s.List.Name != "":
		s.name = s.List.Name
		if err := s.resolve(s.Context); err != nil {
			s.Log.Warn("the API servers' name cannot be resolved yet", "name", s.name, "error", err)
		}
		s.Spawn(s.followName)
		return nil
	}
	var found []endpoint
	for _, u := range s.List.URLs {
		found = append(found, endpoint{u, false})
	}
	return s.set(found)
}

// BaseOf is where requests go that name no server.
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

// endpoint is where a server is.
type endpoint struct {
	url   *url.URL
	spare bool
}

// set makes the servers those that were found.
func (s *Set) set(found []endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := *s.all.Load()
	var next []*Server
	for _, e := range found[:min(len(found), apiservers.Most)] {
		i := slices.IndexFunc(before, func(b *Server) bool { return *b.base == *e.url && b.spare == e.spare })
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
func (s *Set) open(e endpoint) (*Server, error) {
	one := &Server{
		set: s, base: e.url, host: e.url.Host, spare: e.spare,
		log: s.Log.With("server", e.url.Host), kick: make(chan struct{}, 1),
		rank: maphash.String(s.seed, e.url.Host), counts: s.Metrics.of(e.url.Host),
	}
	if s.name != "" {
		one.host = s.Base.Host
	}
	one.mu.attempts = make(map[*attempt]struct{})
	one.counts.up.Set(1)
	one.dead.Probe = one.look
	f := s.Factory.At(e.url, s.name, &one.dead)
	for _, style := range s.Styles {
		pool, err := f.Pool(style)
		if err != nil {
			return nil, err
		}
		one.pools = append(one.pools, pool)
	}
	ctx, retire := context.WithCancel(s.Context)
	one.retire = retire
	s.Spawn(func() { one.watch(ctx) })
	return one, nil
}

// Pools are those of all servers.
func (s *Set) Pools() []*pool.Pool {
	var pools []*pool.Pool
	for _, one := range *s.all.Load() {
		pools = append(pools, one.pools...)
	}
	return pools
}

// choose returns the server for a request, nil when there is none that was not tried.
// One from which nothing is heard is none.
func (s *Set) choose(b *balanced, preferred bool, tried []*Server) *Server {
	at := s.Health.Now().UnixNano()
	if p := s.preferred.Load(); preferred && p != nil && p.now(at) <= Unready && !slices.Contains(tried, p) {
		return p
	}
	all := *s.all.Load()
	turn := int(s.turn.Add(1))
	var best *Server
	var bestClass int
	var bestLoad float64
	for i := range all {
		one := all[(turn+i)%len(all)]
		class := one.class(at)
		if one.Standing() == Silent || slices.Contains(tried, one) || best != nil && class > bestClass {
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
func (s *Server) class(at int64) int {
	class := 2 * int(s.now(at))
	if s.spare {
		class++
	}
	return class
}

// Servers are all there are now.
func (s *Set) Servers() []*Server { return *s.all.Load() }

// prefer sees to it that the server for the feeds is one that is ready.
func (s *Set) prefer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preferLocked()
}

func (s *Set) preferLocked() {
	all, held := *s.all.Load(), s.preferred.Load()
	at := s.Health.Now().UnixNano()
	var best *Server
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
		s.Log.Info("feeds go to an API server", "server", best.base.Host)
	}
	if there {
		held.cut(errMoved, func(a *attempt) bool { return a.feed })
	}
}

// better reports whether feeds should rather go to s than to other: one that has been
// ready for longer knows more of the past.
func (s *Server) better(other *Server, at int64) bool {
	class, classOther := s.class(at), other.class(at)
	since, sinceOther := s.since.Load(), other.since.Load()
	return class < classOther || class == classOther && (since < sinceOther || since == sinceOther && s.rank < other.rank)
}

// lost is called while a server is away: when all are, the cluster is. Servers that refuse
// connections do so at once, and can be tried.
func (s *Set) lost() {
	quick := false
	for _, one := range *s.all.Load() {
		switch one.Standing() {
		case Down:
			quick = true
		case Silent:
		default:
			return
		}
	}
	s.Health.NoneReachable(quick)
}

// Check returns an error when none of the servers can be reached.
func (s *Set) Check() error {
	all := *s.all.Load()
	if len(all) == 0 {
		return ErrNoServers
	}
	var away []string
	for _, one := range all {
		is := one.Standing()
		if is < Down {
			return nil
		}
		away = append(away, one.base.Host+" is "+is.String())
	}
	return errors.New(strings.Join(away, ", "))
}

// Look looks at all servers.
func (s *Set) Look() {
	for _, one := range *s.all.Load() {
		one.look()
	}
}

// patience is for how long what may not be sent again waits for a silent server.
func (s *Set) patience() time.Duration {
	return max(0, s.SilenceTimeout-s.ServerSilence)
}

// Addresses are the servers in messages.
func (s *Set) Addresses() string {
	var names []string
	switch l := &s.List; {
	case l.Slices:
		return "the endpoints of the Service kubernetes, found through " + s.Base.Redacted()
	case l.Name != "":
		return "the addresses of " + s.Base.Redacted()
	default:
		for _, u := range l.URLs {
			names = append(names, u.Redacted())
		}
	}
	return strings.Join(names, ", ")
}
