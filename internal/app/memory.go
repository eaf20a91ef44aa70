package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// memory saves the cluster's last decisions about clients, and its discovery, so that a process that
// starts while no API server responds can serve clients. It is encrypted, because it reveals who may do
// what.
//
//	nothing, or what an earlier process kept ---- the cluster says who it is ----> kept, written behind
//	                                                   |
//	                                                   another one, or it will not say: forgotten
//
// Nothing is written before that, so that what an earlier process saved keeps its age.
type memory struct {
	dir     *state.Dir
	cluster func(context.Context) (string, error) // tells which cluster it is
	server  string                                // where it is
	ttl     func() time.Duration                  // for how long it counts; 0 for nothing to be kept
	log     *slog.Logger
	news    atomic.Bool   // there is something to write
	begun   atomic.Bool   // remember runs, or did
	doubted atomic.Bool   // what was kept is not to be believed before the cluster answers
	stopped chan struct{} // closed by stop: remember is to end
	stop    func()
	done    chan struct{} // closed by end: it has ended
	end     func()

	last     *savedDecisions // of an earlier process, until it is confirmed
	of       string          // the cluster, "" until it was told
	docs     upstream.Documents
	rejected time.Time // since when the cluster will not say which it is; zero while that is not so
	written  time.Time // when it was written last, or that was tried, and how large it was
	size     int
	failing  bool
	cleared  bool // nothing is on disk
}

// savedDecisions is what is written again and again.
type savedDecisions struct {
	Cluster   string    `json:"cluster"`
	Server    string    `json:"server"`
	At        time.Time `json:"at"`
	Decisions decisions `json:"words"`
	// Discovered is the time of the discovery, which is a record of its own.
	Discovered time.Time `json:"discovered"`
}

// decisions are those about tokens and permissions.
type decisions struct {
	authn.SavedTokens
	authz.SavedDecisions
}

const (
	decisionsRecord = "last-words"
	discoveryRecord = "discovery"

	// memoryTick is the interval of the checks for changes. memoryEvery is the interval of writes
	// without changes. Clients determine what changes, and each write saves everything. So a larger
	// file is written less often: memoryRate bounds the bytes per second, until the interval is
	// memoryEvery.
	memoryTick  = time.Second
	memoryEvery = time.Minute
	memoryRate  = 256 << 10
	// memoryWait bounds identifying the cluster, and waiting for the disk at the end.
	memoryWait = 5 * time.Second
	// memoryPatience is for how long a cluster may refuse to say which it is: kube-apiserver
	// refuses everything until it has read its RBAC objects.
	memoryPatience = 10 * time.Second
	// Bytes of what is kept of tokens and of permissions, about.
	maxTokenBytes, maxDecisionBytes = 4 << 20, 12 << 20
)

var (
	errClock     = errors.New("the clock was set back since")
	errElsewhere = errors.New("it is of another API server, perhaps another cluster's")
)

func newMemory(dir *state.Dir, cluster func(context.Context) (string, error), server string, ttl func() time.Duration, log *slog.Logger) *memory {
	m := &memory{dir: dir, cluster: cluster, server: server, ttl: ttl, log: log, stopped: make(chan struct{}), done: make(chan struct{})}
	m.stop = sync.OnceFunc(func() { close(m.stopped) })
	m.end = sync.OnceFunc(func() { close(m.done) })
	return m
}

// load reads what an earlier process, or member, saved. An error means that nothing saved at that time
// may be used; it has been logged.
func (m *memory) load() error {
	if m.ttl() == 0 {
		return nil // remember removes it
	}
	last := &savedDecisions{}
	err := m.read(decisionsRecord, last)
	if err == nil {
		err = last.fits(time.Now(), m.ttl(), m.server)
	}
	switch {
	case err == nil:
		m.last = last
	case !errors.Is(err, fs.ErrNotExist):
		m.log.Warn("saved decisions dropped", "reason", err)
		m.remove()
		if errors.Is(err, errClock) || errors.Is(err, errElsewhere) {
			return err
		}
	}
	return nil
}

// fits returns why the decisions cannot be used.
func (l *savedDecisions) fits(now time.Time, ttl time.Duration, server string) error {
	if l.Server != server {
		return errElsewhere
	}
	age := now.Sub(l.At)
	if age < 0 {
		return errClock
	}
	if age > ttl {
		return fmt.Errorf("it is %s old", age.Round(time.Second))
	}
	return nil
}

func (m *memory) read(name string, to any) error {
	content, err := m.dir.LoadRecord(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, to)
}

// save writes a record and returns its size.
func (m *memory) save(ctx context.Context, name string, what any) (int, error) {
	content, err := json.Marshal(what)
	if err != nil {
		return 0, err
	}
	return len(content), m.dir.SaveRecord(ctx, name, content)
}

// due reports whether it is time to save.
func (m *memory) due(now time.Time) bool {
	since := now.Sub(m.written)
	if since >= memoryEvery {
		return true
	}
	return m.news.Load() && !m.failing && since.Seconds()*memoryRate >= float64(m.size)
}

// remove removes the records, which may allow more than the cluster does now.
func (m *memory) remove() {
	if err := errors.Join(m.dir.RemoveRecord(decisionsRecord), m.dir.RemoveRecord(discoveryRecord)); err != nil {
		m.log.Warn("saved decisions not removed", "error", err)
	}
	m.docs = upstream.Documents{}
}

// clear removes the records once, where nothing is saved.
func (m *memory) clear() {
	if m.last = nil; !m.cleared {
		m.remove()
		m.cleared, m.written = true, time.Time{}
	}
}

// restoreIdentity restores the decisions of an earlier process.
func (c *cluster) restoreIdentity() {
	if c.memory != nil && c.memory.last != nil {
		last := &c.memory.last.Decisions
		c.authenticator.Restore(&last.SavedTokens)
		c.authorizer.Restore(&last.SavedDecisions)
		*last = decisions{}
	}
}

// restoreDiscovery restores the saved discovery, and reports whether there is any.
func (c *cluster) restoreDiscovery() bool {
	if c.memory == nil || c.memory.last == nil {
		return false
	}
	var docs upstream.Documents
	if err := c.memory.read(discoveryRecord, &docs); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("saved discovery dropped", "reason", err)
		}
		return false
	}
	docs.At = c.memory.last.Discovered
	return c.discovery.Restore(&docs)
}

// remember saves decisions until ctx ends, or memory.stop is called.
func (c *cluster) remember(ctx context.Context) {
	m := c.memory
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer m.end()
	ticker := time.NewTicker(memoryTick)
	defer ticker.Stop()
	for first := true; ctx.Err() == nil; first = false {
		if !first { // at once: a process may live for less than a tick, and has read discovery
			select {
			case <-ticker.C:
			case <-m.stopped:
				cancel()
			case <-ctx.Done():
			}
		}
		switch {
		case m.ttl() == 0:
			m.clear()
		case m.of == "" && !c.confirm(ctx):
		case ctx.Err() != nil || m.due(time.Now()):
			c.saveMemory(ctx)
		}
	}
}

// confirm identifies the cluster and reports whether it could. Decisions of another cluster are dropped.
func (c *cluster) confirm(ctx context.Context) bool {
	if ctx.Err() != nil || !c.reachable() {
		return false
	}
	m := c.memory
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	of, err := m.cluster(ctx)
	switch rejects := apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err); {
	case rejects && m.rejected.IsZero():
		m.rejected = time.Now()
		return false
	case rejects && m.last != nil && time.Since(m.rejected) >= memoryPatience:
		m.log.Warn("saved decisions dropped: the upstream does not identify its cluster", "error", err)
		c.forgetDecisions()
		m.last = nil
		m.remove() // it would not have what is saved from now on
		return false
	case rejects:
		return false
	}
	m.rejected = time.Time{}
	switch {
	case err != nil:
		return false
	case m.last == nil:
	case m.last.Cluster != of:
		m.log.Warn("saved decisions dropped: different cluster", "uid", of, "before", m.last.Cluster)
		c.forgetDecisions()
	default:
		c.authorizer.Invalidate() // nobody has followed the RBAC objects meanwhile
	}
	m.of, m.last = of, nil
	return true
}

func (c *cluster) forgetDecisions() {
	c.authenticator.Forget()
	c.authorizer.Forget()
}

// saveMemory saves the present decisions. It obeys the write rate, except at the end: the checkpointer
// lifts it (Dir.Hurry).
func (c *cluster) saveMemory(ctx context.Context) {
	m := c.memory
	ctx = context.WithoutCancel(ctx)
	m.news.Store(false)
	docs := c.discovery.Documents()
	saved := savedDecisions{Cluster: m.of, Server: m.server, At: time.Now(), Discovered: docs.At}
	c.authenticator.Save(&saved.Decisions.SavedTokens, maxTokenBytes)
	c.authorizer.Save(&saved.Decisions.SavedDecisions, maxDecisionBytes)
	size, err := m.save(ctx, decisionsRecord, &saved)
	m.written, m.size, m.cleared = time.Now(), size, false
	if err == nil && (docs.Core != m.docs.Core || docs.Groups != m.docs.Groups || string(docs.Version) != string(m.docs.Version)) {
		if _, err = m.save(ctx, discoveryRecord, &docs); err == nil {
			m.docs = docs
		}
	}
	if err != nil {
		if !m.failing {
			m.log.Warn("decisions not saved", "error", err)
		}
		m.remove()
	}
	m.failing = err != nil
}

// close ends remember, and waits until it has written the last changes. It may be called more than
// once, and of nil.
func (m *memory) close() {
	if m != nil && m.begun.Load() {
		m.stop()
		<-m.done
	}
}
