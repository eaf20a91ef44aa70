package decisions

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
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

// Options configure a Store. All fields are required.
type Options struct {
	Dir *state.Dir
	// Cluster identifies the cluster. Server is its address.
	Cluster func(context.Context) (string, error)
	Server  string
	// TTL returns how long decisions are valid; 0 means that none are saved.
	TTL func() time.Duration
	// Reachable reports whether the cluster can be reached, as far as is known.
	Reachable func() bool
	Discovery *discovery.Catalog
	Log       *slog.Logger
}

// Store saves and loads the decisions of one cluster. Changed and Close are safe for concurrent use,
// and do nothing if the Store is nil. Open, Restore, RestoreDiscovery and Start are called in this
// order.
type Store struct {
	Options
	authenticator *authn.Authenticator
	authorizer    *authz.Authorizer

	changed atomic.Bool   // there is something to save
	started atomic.Bool   // Start was called
	stopped chan struct{} // closed by stop, to end run
	stop    func()
	done    chan struct{} // closed when run has ended

	// The fields below belong to run once it has started.
	last     *record // of an earlier process, until the cluster has identified itself
	of       string  // the cluster, "" until it has identified itself
	docs     discovery.Documents
	rejected time.Time // since when the cluster refuses to identify itself; zero if it does not
	written  time.Time // when decisions were last saved, or that was tried
	size     int       // of what was saved
	failing  bool
	cleared  bool // nothing is on disk
}

// record is the file with the decisions.
type record struct {
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

	// checkPeriod is the interval of the checks for changes. savePeriod is the interval of saves
	// without changes. Clients determine what changes, and each save writes everything. So a larger
	// record is saved less often: saveRate bounds the bytes per second, until the interval is
	// savePeriod.
	checkPeriod = time.Second
	savePeriod  = time.Minute
	saveRate    = 256 << 10
	// identifyTimeout bounds identifying the cluster.
	identifyTimeout = 5 * time.Second
	// maxUnidentified is how long a cluster may refuse to identify itself: kube-apiserver rejects
	// everything until it has read its RBAC objects.
	maxUnidentified = 10 * time.Second
	// maxTokenBytes and maxDecisionBytes bound what is saved of tokens and permissions, roughly.
	maxTokenBytes, maxDecisionBytes = 4 << 20, 12 << 20
)

var (
	errClock     = errors.New("the clock was set back since")
	errElsewhere = errors.New("it is of another API server, perhaps another cluster's")
)

// Open loads what an earlier process, or member, saved. If doubtful is true, nothing that was saved at
// that time may be used; the reason has been logged.
func Open(o Options) (s *Store, doubtful bool) {
	s = &Store{Options: o, stopped: make(chan struct{}), done: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	return s, s.load() != nil
}

func (s *Store) load() error {
	if s.TTL() == 0 {
		return nil // run removes it
	}
	last := &record{}
	err := s.read(decisionsRecord, last)
	if err == nil {
		err = last.check(time.Now(), s.TTL(), s.Server)
	}
	switch {
	case err == nil:
		s.last = last
	case !errors.Is(err, fs.ErrNotExist):
		s.Log.Warn("saved decisions dropped", "reason", err)
		s.remove()
		if errors.Is(err, errClock) || errors.Is(err, errElsewhere) {
			return err
		}
	}
	return nil
}

// check returns why the decisions cannot be used.
func (r *record) check(now time.Time, ttl time.Duration, server string) error {
	if r.Server != server {
		return errElsewhere
	}
	age := now.Sub(r.At)
	if age < 0 {
		return errClock
	}
	if age > ttl {
		return fmt.Errorf("it is %s old", age.Round(time.Second))
	}
	return nil
}

// Restore sets whose decisions are saved, and restores those that were loaded.
func (s *Store) Restore(authenticator *authn.Authenticator, authorizer *authz.Authorizer) {
	s.authenticator, s.authorizer = authenticator, authorizer
	if s.last != nil {
		authenticator.Restore(&s.last.Decisions.SavedTokens)
		authorizer.Restore(&s.last.Decisions.SavedDecisions)
		s.last.Decisions = decisions{}
	}
}

// RestoreDiscovery restores the saved discovery, and reports whether there is any.
func (s *Store) RestoreDiscovery() bool {
	if s.last == nil {
		return false
	}
	var docs discovery.Documents
	if err := s.read(discoveryRecord, &docs); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("saved discovery dropped", "reason", err)
		}
		return false
	}
	docs.At = s.last.Discovered
	return s.Discovery.Restore(&docs)
}

// Start saves decisions until ctx ends or Close is called.
func (s *Store) Start(ctx context.Context, panics *contain.Panics) {
	s.started.Store(true)
	panics.Go(nil, "background", func() { s.run(ctx) })
}

// Changed records that there are decisions to save.
func (s *Store) Changed() { s.changed.Store(true) }

// Close saves the last changes and waits until they are written. It may be called more than once.
func (s *Store) Close() {
	if s != nil && s.started.Load() {
		s.stop()
		<-s.done
	}
}

func (s *Store) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(s.done)
	ticker := time.NewTicker(checkPeriod)
	defer ticker.Stop()
	for first := true; ctx.Err() == nil; first = false {
		if !first { // at once: a process may live for less than checkPeriod, and has read discovery
			select {
			case <-ticker.C:
			case <-s.stopped:
				cancel()
			case <-ctx.Done():
			}
		}
		switch {
		case s.TTL() == 0:
			s.clear()
		case s.of == "" && !s.identify(ctx):
		case ctx.Err() != nil || s.isDue(time.Now()):
			s.save(ctx)
		}
	}
}

// identify identifies the cluster and reports whether it could. Decisions of another cluster are
// dropped.
func (s *Store) identify(ctx context.Context) bool {
	if ctx.Err() != nil || !s.Reachable() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	of, err := s.Cluster(ctx)
	switch rejects := apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err); {
	case rejects && s.rejected.IsZero():
		s.rejected = time.Now()
		return false
	case rejects && s.last != nil && time.Since(s.rejected) >= maxUnidentified:
		s.Log.Warn("saved decisions dropped: the upstream does not identify its cluster", "error", err)
		s.forget()
		s.last = nil
		s.remove() // nothing replaces them from now on
		return false
	case rejects:
		return false
	}
	s.rejected = time.Time{}
	switch {
	case err != nil:
		return false
	case s.last == nil:
	case s.last.Cluster != of:
		s.Log.Warn("saved decisions dropped: different cluster", "uid", of, "before", s.last.Cluster)
		s.forget()
	default:
		s.authorizer.Invalidate() // nobody has followed the RBAC objects meanwhile
	}
	s.of, s.last = of, nil
	return true
}

func (s *Store) forget() {
	s.authenticator.Forget()
	s.authorizer.Forget()
}

// isDue reports whether it is time to save.
func (s *Store) isDue(now time.Time) bool {
	since := now.Sub(s.written)
	if since >= savePeriod {
		return true
	}
	return s.changed.Load() && !s.failing && since.Seconds()*saveRate >= float64(s.size)
}

// save saves the present decisions. It obeys the write rate, except at the end: the checkpointer
// lifts it (Dir.Hurry).
func (s *Store) save(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	s.changed.Store(false)
	docs := s.Discovery.Documents()
	r := record{Cluster: s.of, Server: s.Server, At: time.Now(), Discovered: docs.At}
	s.authenticator.Save(&r.Decisions.SavedTokens, maxTokenBytes)
	s.authorizer.Save(&r.Decisions.SavedDecisions, maxDecisionBytes)
	size, err := s.write(ctx, decisionsRecord, &r)
	s.written, s.size, s.cleared = time.Now(), size, false
	if err == nil && (docs.Core != s.docs.Core || docs.Groups != s.docs.Groups || string(docs.Version) != string(s.docs.Version)) {
		if _, err = s.write(ctx, discoveryRecord, &docs); err == nil {
			s.docs = docs
		}
	}
	if err != nil {
		if !s.failing {
			s.Log.Warn("decisions not saved", "error", err)
		}
		s.remove()
	}
	s.failing = err != nil
}

// read reads a record.
func (s *Store) read(name string, to any) error {
	content, err := s.Dir.LoadRecord(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, to)
}

// write writes a record and returns its size.
func (s *Store) write(ctx context.Context, name string, r any) (int, error) {
	content, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	return len(content), s.Dir.SaveRecord(ctx, name, content)
}

// remove removes the records, which may allow more than the cluster does now.
func (s *Store) remove() {
	if err := errors.Join(s.Dir.RemoveRecord(decisionsRecord), s.Dir.RemoveRecord(discoveryRecord)); err != nil {
		s.Log.Warn("saved decisions not removed", "error", err)
	}
	s.docs = discovery.Documents{}
}

// clear removes the records once, while nothing is to be saved.
func (s *Store) clear() {
	if s.last = nil; !s.cleared {
		s.remove()
		s.cleared, s.written = true, time.Time{}
	}
}
