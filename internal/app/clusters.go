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
	"github.com/kubeweir/kubeweir/proxy/clusters"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// clusterSet is the clusters that one process serves, independently of each other. They can change
// while they are served.
type clusterSet struct {
	log       *slog.Logger
	registry  *prometheus.Registry // the process's
	userAgent string
	blocked   *policy.Blocked
	recorders recorders
	drainTime time.Duration
	health    *healthz.Health
	router    *clusters.Router
	panics    *contain.Panics
	profiles  *profiles // nil if no hub names clusters

	// members are the clusters that requests are routed to.
	members atomic.Pointer[[]*member]
	// changing is locked while members change. It guards rejected, the reasons why ClusterProfiles
	// are rejected, by name, and retiring, members that are removed and may still drain.
	changing sync.Mutex
	rejected map[string]rejection
	retiring []*member
	// running are the starts and removals of members, which end early when ctx does.
	running sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

// member is one of several clusters.
type member struct {
	*cluster
	name string
	// config is guarded by clusterSet.changing. origin is the digest of the kubeconfig.
	config   *config.Cluster
	origin   [sha256.Size]byte
	registry *prometheus.Registry // its own, so that its metrics end with it
	target   *clusters.Target
	started  chan struct{} // closed when start has returned; nil before
	ended    atomic.Bool
}

// newClusters creates a clusterSet without members.
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

// connect creates a member with its client, which sends nothing yet.
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

// complete creates the other parts of a connected member.
func (s *clusterSet) complete(m *member) error {
	if err := m.build(&m.config.Gateway, "", s.recorders); err != nil {
		return fmt.Errorf("cluster %s: %w", m.name, err)
	}
	m.target = s.router.NewTarget(m.name, m.handler)
	return nil
}

// connectAll creates the first members. completeAll completes them.
func (s *clusterSet) connectAll(list []wanted) (members []*member, err error) {
	// Concurrently: connecting may take seconds if the API servers are found by DNS.
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
	s.members.Store(&members) // so that close closes them after an error
	return members, nil
}

func (s *clusterSet) completeAll(members []*member, to recorders) error {
	s.recorders = to
	for _, m := range members {
		if err := s.complete(m); err != nil {
			return err
		}
	}
	s.set(members)
	return nil
}

// digest returns the digest of a file's contents, zero if it cannot be read.
func digest(file string) [sha256.Size]byte {
	content, err := os.ReadFile(file)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(content)
}

// set routes requests to members. The caller holds changing, or nothing runs yet.
func (s *clusterSet) set(members []*member) {
	routes := make([]clusters.Route, len(members))
	for i, m := range members {
		routes[i] = clusters.Route{Hosts: m.config.Hosts, PathPrefix: m.config.PathPrefix, Target: m.target}
	}
	s.members.Store(&members)
	s.router.SetRoutes(routes)
}

// startWait is how long clusters that do not respond delay the others. Their start continues; until it
// ends, their requests are forwarded.
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

// change is how a new configuration, or new ClusterProfiles, change the members.
type change struct {
	wanted     []wanted // all clusters to serve
	next, made []*member
	configs    []*config.Cluster // of next
	// added, removed and replaced are names of clusters.
	added, removed, replaced []string
	rejected                 map[string]rejection // why ClusterProfiles are rejected, by name
}

// discard closes the new members of a change that is not applied.
func (p *change) discard() {
	for _, m := range p.made {
		m.close()
	}
}

// differs reports whether other clusters are served than before.
func (p *change) differs() bool { return p != nil && len(p.made)+len(p.removed) > 0 }

// logMembers logs the change, which is nil where there is one cluster.
func (p *change) logMembers(log *slog.Logger, what string) {
	if p != nil {
		log = log.With("clusters", len(p.next), "added", p.added, "removed", p.removed, "replaced", p.replaced)
	}
	log.Info(what)
}

func (p *change) place(m *member, c *config.Cluster) {
	p.next, p.configs = append(p.next, m), append(p.configs, c)
}

// plan computes the change that serves a list of clusters, and creates the new members. The caller
// holds changing, and calls apply or discard. With reread, a changed kubeconfig replaces a member.
func (s *clusterSet) plan(list []wanted, reread bool) (*change, error) {
	p, complete := &change{wanted: list, rejected: make(map[string]rejection)}, false
	defer func() {
		if !complete { // an error, or a panic
			p.discard()
		}
	}()
	old := *s.members.Load()
	for i := range list {
		w := &list[i]
		if errors.Is(w.err, errNameTaken) {
			s.reject(p, w, rejection{rejectedName, w.err.Error()}, false)
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
			why := rejection{rejectedCluster, err.Error()}
			if w.err != nil {
				why.reason = rejectedAccess
			}
			s.reject(p, w, why, at >= 0)
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
	complete = true
	return p, nil
}

// replace creates a member and adds it to p.made. A panic caused by a ClusterProfile rejects only that
// profile.
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
		err = try() // on an error the caller discards the change
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

// reject records why a ClusterProfile is rejected, and logs it once.
func (s *clusterSet) reject(p *change, w *wanted, why rejection, stays bool) {
	name := w.config.Name
	if p.rejected[name] = why; why == s.rejected[name] {
		return
	}
	what := "ClusterProfile rejected"
	if stays {
		what += ", the cluster stays as it was"
	}
	s.log.Warn(what, "profile", w.profile, "cluster", name, "error", why.text)
}

// apply applies a plan: it starts the new members, routes requests to them, and then removes the old
// ones.
func (s *clusterSet) apply(ctx context.Context, p *change, c *config.Gateway) {
	old := *s.members.Load()
	s.clearState(c, p.wanted)
	s.setPolicies(old, p)
	s.startAll(ctx, p.made)
	for i, m := range p.next {
		m.config = p.configs[i]
	}
	if s.rejected = p.rejected; s.profiles != nil {
		s.profiles.count(p.rejected)
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
			before.releaseState()
		}
	}
}

// clearState removes the state of clusters that are no longer served, if it is below the state directory
// of the top level.
func (s *clusterSet) clearState(c *config.Gateway, list []wanted) {
	if c.State.Dir == "" || s.profiles != nil && !s.profiles.listed {
		return // the clusters are not known yet
	}
	var keep []string
	for i := range list {
		keep = append(keep, list[i].config.State.Dir)
	}
	state.ClearOthers(c.State.Dir, keep, s.log)
}

// clearOwn removes the state of a removed member if it is in a directory of its own. clearState removes
// the others.
func (s *clusterSet) clearOwn(m *member, common string) {
	s.changing.Lock() // no other member opens the directory meanwhile
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

// retire drains and closes a member that no request is routed to any more. common is the state directory
// of the top level.
func (s *clusterSet) retire(m *member, common string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.drainTime+cutAfter)
	defer cancel()
	m.handler.Drain(ctx, s.drainTime)
	if err := m.target.Retire(ctx); err != nil {
		m.log.Warn("cluster removed, its last requests reset")
	}
	<-m.started
	m.close()
	s.clearOwn(m, common)
	m.ended.Store(true)
	m.log.Info("cluster removed")
}

// clusters implements served.
func (s *clusterSet) clusters() (list []*cluster) {
	for _, m := range *s.members.Load() {
		list = append(list, m.cluster)
	}
	return list
}

// close closes all members.
func (s *clusterSet) close() {
	s.stop()
	s.changing.Lock()
	members := *s.members.Load() // they do not change any more, because ctx has ended
	s.changing.Unlock()
	s.running.Wait() // without changing, which retire locks
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
