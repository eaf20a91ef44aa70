package serve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/cache/state"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/audit"
)

// clusters are several that one process serves, each by itself: what becomes of one
// concerns no other. They can be changed while they are served.
type clusters struct {
	log       *slog.Logger
	registry  *prometheus.Registry // the process's
	userAgent string
	audit     *audit.Log // may be nil
	drainTime time.Duration
	health    *proxy.Health
	router    *proxy.Router
	panics    *contain.Panics

	// members are those that requests are routed to.
	members atomic.Pointer[[]*member]
	// changing is held while members change.
	changing sync.Mutex
	// running are starts and retirements, which end early when ctx does.
	running sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

// member is one of clusters.
type member struct {
	*cluster
	name string
	// config is what it was made of, but for its routes, which may have changed since; it is
	// guarded by clusters.changing. kubeconfig is the digest of the file.
	config     *config.Cluster
	kubeconfig [sha256.Size]byte
	registry   *prometheus.Registry // its own: what it counts goes with it
	target     *proxy.Target
	started    chan struct{} // closed when start has returned; nil before
}

// newClusters makes what several clusters have in common.
func newClusters(c *config.Gateway, userAgent string, log *slog.Logger, registry *prometheus.Registry) *clusters {
	s := &clusters{log: log, registry: registry, userAgent: userAgent, drainTime: c.Shutdown.Drain, panics: contain.New(registry, log)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.members.Store(new([]*member))
	s.health = proxy.NewHealthOf(func() (parts []proxy.Part) {
		for _, m := range *s.members.Load() {
			parts = append(parts, proxy.Part{Name: m.name, Health: m.health})
		}
		return parts
	})
	s.router = proxy.NewRouter(proxy.RouterOptions{
		Prefix: config.ClusterPathPrefix, Health: s.health, Registerer: registry,
		InFlight: int64(c.AllClusters.MaxInFlight), LongRunning: int64(c.AllClusters.MaxWatches),
	})
	return s
}

// connect makes what a cluster is asked by; nothing is asked yet.
func (s *clusters) connect(c *config.Cluster) (*member, error) {
	m := &member{name: c.Name, config: c, registry: prometheus.NewRegistry(), kubeconfig: digest(c.Kubeconfig)}
	m.cluster = newCluster(s.log.With("cluster", c.Name), prometheus.WrapRegistererWith(prometheus.Labels{"cluster": c.Name}, m.registry))
	m.cluster.name = c.Name
	if err := m.connectTo(&c.Gateway, s.userAgent); err != nil {
		m.close()
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return m, nil
}

// complete makes the rest of a member that is connected.
func (s *clusters) complete(m *member) error {
	if err := m.build(&m.config.Gateway, "", s.audit); err != nil {
		return fmt.Errorf("cluster %s: %w", m.name, err)
	}
	m.target = s.router.NewTarget(m.name, m.handler)
	return nil
}

// connectAll makes the first members; those are served when completeAll has them.
func (s *clusters) connectAll(list []config.Cluster) (members []*member, err error) {
	// At the same time: to connect may take seconds, where DNS says which servers there are.
	made := make([]*member, len(list))
	var all errgroup.Group
	for i := range list {
		all.Go(s.panics.Func("background", func() (err error) {
			made[i], err = s.connect(&list[i])
			return err
		}))
	}
	err = all.Wait()
	members = slices.DeleteFunc(made, func(m *member) bool { return m == nil })
	if err != nil {
		for _, m := range members {
			m.close()
		}
		return nil, err
	}
	s.members.Store(&members) // so that close ends them, whatever comes
	return members, nil
}

func (s *clusters) completeAll(members []*member, log *audit.Log) error {
	s.audit = log
	for _, m := range members {
		if err := s.complete(m); err != nil {
			return err
		}
	}
	s.set(members)
	return nil
}

// digest tells whether a file has changed; all that cannot be read are alike.
func digest(file string) [sha256.Size]byte {
	content, err := os.ReadFile(file)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(content)
}

// set makes members those that are served. The caller holds changing, or nothing runs yet.
func (s *clusters) set(members []*member) {
	routes := make([]proxy.Route, len(members))
	for i, m := range members {
		routes[i] = proxy.Route{Hosts: m.config.Hosts, PathPrefix: m.config.PathPrefix, Target: m.target}
	}
	s.members.Store(&members)
	s.router.SetRoutes(routes)
}

// startWait is how long those clusters that do not answer delay what the others could do
// already. Their start goes on; until it is through, all of their requests are forwarded.
const startWait = 2 * time.Second

// start starts all members.
func (s *clusters) start(ctx context.Context) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.startAll(ctx, *s.members.Load())
}

func (s *clusters) startAll(ctx context.Context, members []*member) {
	for _, m := range members {
		m.started = make(chan struct{})
		s.panics.Go(&s.running, "background", func() {
			defer close(m.started)
			m.cluster.start(s.ctx)
		})
	}
	wait, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for _, m := range members {
		select {
		case <-m.started:
		case <-wait.Done():
			return
		}
	}
}

// change is what a new configuration makes of the members.
type change struct {
	next, made []*member
	changed    []string // names of members that take the place of another
}

// discard ends what was made for a change that does not come.
func (p *change) discard() {
	for _, m := range p.made {
		m.close()
	}
}

// plan finds out what is to be done for a configuration, and makes the new members. Nothing
// is served in another way yet; the caller holds changing, and calls apply or discard.
func (s *clusters) plan(list []config.Cluster) (*change, error) {
	p, whole := &change{}, false
	defer func() {
		if !whole { // an error, or a panic
			p.discard()
		}
	}()
	old := *s.members.Load()
	for i := range list {
		c := &list[i]
		at := slices.IndexFunc(old, func(m *member) bool { return m.name == c.Name })
		if at >= 0 && old[at].config.Same(c) && old[at].kubeconfig == digest(c.Kubeconfig) {
			p.next = append(p.next, old[at])
			continue
		}
		m, err := s.connect(c)
		if err != nil {
			return nil, err
		}
		m.succeeds = true
		p.made = append(p.made, m)
		p.next = append(p.next, m)
		if at >= 0 {
			p.changed = append(p.changed, m.name)
		}
		if err := s.complete(m); err != nil {
			return nil, err
		}
	}
	whole = true
	return p, nil
}

// apply does what was planned for a configuration: the new members get the state folders of
// those whose places they take and are started, then requests are routed to them, then those
// that are not served any more end.
func (s *clusters) apply(ctx context.Context, p *change, c *config.Gateway) {
	old, list := *s.members.Load(), c.Clusters
	s.handOver(old, p)
	s.clearState(c)
	s.startAll(ctx, p.made)
	for i, m := range p.next {
		m.config = &list[i]
	}
	s.set(p.next)
	for _, m := range old {
		if !slices.Contains(p.next, m) {
			s.panics.Go(&s.running, "background", func() { s.retire(m) })
		}
	}
}

// handOver gives the state folders of members that end to those that take their places.
func (s *clusters) handOver(old []*member, p *change) {
	for _, m := range p.made {
		if !m.inherits {
			continue
		}
		for _, before := range old {
			if !slices.Contains(p.next, before) && before.config.State.Dir == m.config.State.Dir {
				before.letGo()
			}
		}
		m.inherit()
	}
}

// clearState removes the state of clusters that the configuration has no more, as far as they
// had their folders from its top level.
func (s *clusters) clearState(c *config.Gateway) {
	if c.State.Dir == "" {
		return
	}
	var keep []string
	for i := range c.Clusters {
		keep = append(keep, c.Clusters[i].State.Dir)
	}
	state.ClearOthers(c.State.Dir, keep, s.log)
}

// retire ends a member that no request is routed to any more: its watches over the time of
// a drain, all else when it is through or a little later.
func (s *clusters) retire(m *member) {
	ctx, cancel := context.WithTimeout(s.ctx, s.drainTime+cutAfter)
	defer cancel()
	m.handler.Drain(ctx, s.drainTime)
	if err := m.target.Retire(ctx); err != nil {
		m.log.Warn("requests were cut as their cluster is not served any more")
	}
	<-m.started
	m.close()
	m.log.Info("the cluster is not served any more")
}

// drain ends the watches of all members.
func (s *clusters) drain(ctx context.Context, over time.Duration) {
	var all sync.WaitGroup
	for _, m := range *s.members.Load() {
		s.panics.Go(&all, "background", func() { m.handler.Drain(ctx, over) })
	}
	all.Wait()
}

// close ends everything.
func (s *clusters) close() {
	s.stop()
	s.changing.Lock() // no change is under way any more, and none begins
	defer s.changing.Unlock()
	s.running.Wait()
	var all sync.WaitGroup
	for _, m := range *s.members.Load() {
		s.panics.Go(&all, "background", m.close)
	}
	all.Wait()
}

// Gather implements prometheus.Gatherer for the process and all members.
func (s *clusters) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{s.registry}
	for _, m := range *s.members.Load() {
		all = append(all, m.registry)
	}
	return all.Gather()
}
