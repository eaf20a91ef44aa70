package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/clusters"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// clusterSet are several that one process serves, each by itself: what becomes of one
// concerns no other. They can be changed while they are served.
type clusterSet struct {
	log       *slog.Logger
	registry  *prometheus.Registry // the process's
	userAgent string
	blocked   *policy.Blocked
	audit     *audit.Log // may be nil
	drainTime time.Duration
	health    *healthz.Health
	router    *clusters.Router
	panics    *contain.Panics
	profiles  *profiles // nil if no hub names clusters

	// members are those that requests are routed to.
	members atomic.Pointer[[]*member]
	// changing is held while members change. refused is why ClusterProfiles are none, by their
	// names, guarded by it.
	changing sync.Mutex
	refused  map[string]refusal
	// retiring are members that end, or have ended since; guarded by changing.
	retiring []*member
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
	// guarded by clusters.changing. origin is the digest of what says how it is reached.
	config   *config.Cluster
	origin   [sha256.Size]byte
	registry *prometheus.Registry // its own: what it counts goes with it
	target   *clusters.Target
	started  chan struct{} // closed when start has returned; nil before
	ended    atomic.Bool   // it was closed
}

// newClusters makes what several clusters have in common.
func newClusters(c *config.Gateway, userAgent string, log *slog.Logger, registry *prometheus.Registry, blocked *policy.Blocked) (_ *clusterSet, err error) {
	s := &clusterSet{log: log, registry: registry, blocked: blocked, userAgent: userAgent, drainTime: c.Shutdown.Drain, panics: contain.New(registry, log)}
	if c.ClusterProfiles.On() {
		if s.profiles, err = newProfiles(c, userAgent, log, registry); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.members.Store(new([]*member))
	s.health = healthz.NewOfParts(func() (parts []healthz.Part) {
		for _, m := range *s.members.Load() {
			parts = append(parts, healthz.Part{Name: m.name, Health: m.health})
		}
		if s.profiles != nil && !s.profiles.taken.Load() {
			parts = append(parts, s.profiles.part())
		}
		return parts
	})
	s.router = clusters.NewRouter(clusters.RouterOptions{
		Prefix: config.ClusterPathPrefix, Health: s.health, Registerer: registry,
		InFlight: int64(c.AllClusters.MaxInFlight), LongRunning: int64(c.AllClusters.MaxWatches),
	})
	return s, nil
}

// connect makes what a cluster is asked by; nothing is asked yet.
func (s *clusterSet) connect(w *wanted) (*member, error) {
	c := w.config
	m := &member{name: c.Name, config: c, registry: prometheus.NewRegistry(), origin: w.origin}
	m.cluster = newCluster(s.log.With("cluster", c.Name), prometheus.WrapRegistererWith(prometheus.Labels{"cluster": c.Name}, m.registry), m.registry, s.blocked)
	m.cluster.name = c.Name
	access, err := w.restConfig()
	if err == nil {
		err = m.connectTo(&c.Gateway, access, s.userAgent)
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return m, nil
}

// complete makes the rest of a member that is connected.
func (s *clusterSet) complete(m *member) error {
	if err := m.build(&m.config.Gateway, "", s.audit); err != nil {
		return fmt.Errorf("cluster %s: %w", m.name, err)
	}
	m.target = s.router.NewTarget(m.name, m.handler)
	return nil
}

// connectAll makes the first members; those are served when completeAll has them.
func (s *clusterSet) connectAll(list []wanted) (members []*member, err error) {
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

func (s *clusterSet) completeAll(members []*member, log *audit.Log) error {
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
func (s *clusterSet) set(members []*member) {
	routes := make([]clusters.Route, len(members))
	for i, m := range members {
		routes[i] = clusters.Route{Hosts: m.config.Hosts, PathPrefix: m.config.PathPrefix, Target: m.target}
	}
	s.members.Store(&members)
	s.router.SetRoutes(routes)
}

// startWait is how long those clusters that do not answer delay what the others could do
// already. Their start goes on; until it is through, all of their requests are forwarded.
const startWait = 2 * time.Second

// start starts all members.
func (s *clusterSet) start(ctx context.Context) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.startAll(ctx, *s.members.Load())
}

func (s *clusterSet) startAll(ctx context.Context, members []*member) {
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

// change is what a new configuration, or new ClusterProfiles, make of the members.
type change struct {
	wanted     []wanted // all that is to be served
	next, made []*member
	configs    []*config.Cluster // of next
	// added, removed and replaced are names: of those that were not there, that are not any
	// more, and that take the place of another.
	added, removed, replaced []string
	refused                  map[string]refusal // why ClusterProfiles are none, by name
}

// discard ends what was made for a change that does not come.
func (p *change) discard() {
	for _, m := range p.made {
		m.close()
	}
}

// differs reports whether other clusters are served than before.
func (p *change) differs() bool { return p != nil && len(p.made)+len(p.removed) > 0 }

// tell logs the change, which is nil where there is one cluster.
func (p *change) tell(log *slog.Logger, what string) {
	if p != nil {
		log = log.With("clusters", len(p.next), "added", p.added, "removed", p.removed, "replaced", p.replaced)
	}
	log.Info(what)
}

func (p *change) place(m *member, c *config.Cluster) {
	p.next, p.configs = append(p.next, m), append(p.configs, c)
}

// plan finds out what is to be done for a list of clusters, and makes the new members. Nothing
// is served in another way yet; the caller holds changing, and calls apply or discard. reread
// tells that kubeconfigs count as they are now: else, as they were.
func (s *clusterSet) plan(list []wanted, reread bool) (*change, error) {
	p, whole := &change{wanted: list, refused: make(map[string]refusal)}, false
	defer func() {
		if !whole { // an error, or a panic
			p.discard()
		}
	}()
	old := *s.members.Load()
	for i := range list {
		w := &list[i]
		if errors.Is(w.err, errNameTaken) {
			s.refuse(p, w, refusal{refusedName, w.err.Error()}, false)
			continue
		}
		at := slices.IndexFunc(old, func(m *member) bool { return m.name == w.config.Name })
		if at >= 0 && old[at].config.Same(w.config) && (old[at].origin == w.origin || w.profile == "" && !reread) {
			p.place(old[at], w.config)
			continue
		}
		m, err := s.replace(p, w)
		switch {
		case err == nil:
			p.place(m, w.config)
			if at >= 0 {
				p.replaced = append(p.replaced, m.name)
			} else {
				p.added = append(p.added, m.name)
			}
		case w.profile == "":
			return nil, err
		default:
			why := refusal{refusedCluster, err.Error()}
			if w.err != nil {
				why.reason = refusedAccess
			}
			s.refuse(p, w, why, at >= 0)
			if at >= 0 {
				p.place(old[at], old[at].config)
			}
		}
	}
	for _, m := range old {
		if !slices.ContainsFunc(p.next, func(next *member) bool { return next.name == m.name }) {
			p.removed = append(p.removed, m.name)
		}
	}
	whole = true
	return p, nil
}

// replace makes a member, one of p.made. A panic over a ClusterProfile is an error of that one.
func (s *clusterSet) replace(p *change, w *wanted) (m *member, err error) {
	try := func() (err error) {
		if w.err != nil {
			return w.err
		}
		if m, err = s.connect(w); err != nil {
			return err
		}
		p.made = append(p.made, m)
		s.freeState(p, m)
		return s.complete(m)
	}
	if w.profile == "" {
		err = try() // and the caller gives up all that is made
		return m, err
	}
	made := len(p.made)
	if err = s.panics.Func("background", try)(); err != nil {
		for _, m := range p.made[made:] {
			m.close()
		}
		p.made = p.made[:made]
	}
	return m, err
}

// refuse tells why a ClusterProfile cannot be used, if that was not told already.
func (s *clusterSet) refuse(p *change, w *wanted, why refusal, stays bool) {
	name := w.config.Name
	if p.refused[name] = why; why == s.refused[name] {
		return
	}
	what := "a ClusterProfile cannot be used"
	if stays {
		what += ", the cluster stays as it was"
	}
	s.log.Warn(what, "profile", w.profile, "cluster", name, "error", why.text)
}

// apply does what was planned: the new members get the state folders of those whose places
// they take and are started, then requests are routed to them, then those that are not served
// any more end.
func (s *clusterSet) apply(ctx context.Context, p *change, c *config.Gateway) {
	old := *s.members.Load()
	s.clearState(c, p.wanted)
	s.setPolicies(old, p)
	s.startAll(ctx, p.made)
	for i, m := range p.next {
		m.config = p.configs[i]
	}
	if s.refused = p.refused; s.profiles != nil {
		s.profiles.count(p.refused)
	}
	s.set(p.next)
	s.retiring = slices.DeleteFunc(s.retiring, func(m *member) bool { return m.ended.Load() })
	for _, m := range old {
		if !slices.Contains(p.next, m) {
			s.retiring = append(s.retiring, m)
			s.panics.Go(&s.running, "background", func() { s.retire(m, c.State.Dir) })
		}
	}
}

// setPolicies gives the present members the new policies of their clusters. That includes members
// that are being replaced, because their watches continue until they are drained.
func (s *clusterSet) setPolicies(old []*member, p *change) {
	for _, m := range slices.Concat(old, s.retiring) {
		i := slices.IndexFunc(p.configs, func(c *config.Cluster) bool { return c.Name == m.name })
		if i >= 0 && !m.ended.Load() && !m.config.SamePolicy(p.configs[i]) {
			m.setPolicy(&p.configs[i].Gateway)
		}
	}
}

// freeState makes members that m replaces release the state directory that m is about to open. They
// may have been removed a while ago and still drain. If the change is discarded, they are served
// without checkpoints until they are replaced.
func (s *clusterSet) freeState(p *change, m *member) {
	dir := m.config.State.Dir
	for _, before := range slices.Concat(*s.members.Load(), s.retiring) {
		stays := slices.ContainsFunc(p.wanted, func(w wanted) bool {
			return w.config.Name == before.name && w.config.Name != m.name && w.config.State.Dir == dir
		})
		if before.config.State.Dir == dir && !stays {
			before.letGo()
		}
	}
}

// clearState removes the state of clusters that the configuration has no more, as far as they
// had their folders from its top level.
func (s *clusterSet) clearState(c *config.Gateway, list []wanted) {
	if c.State.Dir == "" || s.profiles != nil && !s.profiles.listed {
		return // or which clusters there are is not known yet
	}
	var keep []string
	for i := range list {
		keep = append(keep, list[i].config.State.Dir)
	}
	state.ClearOthers(c.State.Dir, keep, s.log)
}

// clearOwn removes the state of a member that has ended, if its cluster had a folder of its own,
// not from the top level: what is below that is clearState's.
func (s *clusterSet) clearOwn(m *member, common string) {
	s.changing.Lock() // nobody takes the folder over meanwhile
	defer s.changing.Unlock()
	dir := m.config.State.Dir
	if dir == "" || common != "" && filepath.Clean(dir) == filepath.Join(common, m.name) {
		return
	}
	for _, other := range *s.members.Load() {
		if filepath.Clean(other.config.State.Dir) == filepath.Clean(dir) {
			return
		}
	}
	state.Clear(dir, m.name, s.log)
}

// retire ends a member that no request is routed to any more: its watches over the time of
// a drain, all else when it is through or a little later. common is the state folder of the top
// level.
func (s *clusterSet) retire(m *member, common string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.drainTime+cutAfter)
	defer cancel()
	m.handler.Drain(ctx, s.drainTime)
	if err := m.target.Retire(ctx); err != nil {
		m.log.Warn("requests were cut as their cluster is not served any more")
	}
	<-m.started
	m.close()
	s.clearOwn(m, common)
	m.ended.Store(true)
	m.log.Info("the cluster is not served any more")
}

// clusters implements served.
func (s *clusterSet) clusters() (list []*cluster) {
	for _, m := range *s.members.Load() {
		list = append(list, m.cluster)
	}
	return list
}

// close ends everything.
func (s *clusterSet) close() {
	s.stop()
	s.changing.Lock()
	members := *s.members.Load() // the last ones: none change any more, as ctx has ended
	s.changing.Unlock()
	s.running.Wait() // who retires needs changing
	var all sync.WaitGroup
	for _, m := range members {
		s.panics.Go(&all, "background", m.close)
	}
	all.Wait()
}

// Gather implements prometheus.Gatherer for the process and all members.
func (s *clusterSet) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{s.registry}
	for _, m := range *s.members.Load() {
		all = append(all, m.registry)
	}
	return all.Gather()
}
