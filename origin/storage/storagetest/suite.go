// Package storagetest is the test suite that every storage.Engine passes. It checks the
// contract in sequential and concurrent use, over restarts and, for a store outside the
// process, while that store fails and recovers.
//
// No case relies on a sleep. To show that no other event comes, a case makes one more change,
// a fence: when its event arrives, all events before it have.
package storagetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// caseTime bounds a case that waits for the engine only.
	caseTime = 60 * time.Second
	// faultTime bounds a case in which stores die and are started again.
	faultTime = 5 * time.Minute
)

// A Store is the store of a case. It may have other keys and other writers: a case uses keys
// below a prefix of its own and does not expect consecutive revisions.
type Store struct {
	// Engine is open; the suite closes it, and those that the functions below return.
	Engine storage.Engine
	// Reopen ends e as abruptly as possible (for a store in this process: without Close, as
	// a crash does) and opens the same data again. If there is no other way, it closes e. Nil:
	// the data do not outlive the engine, and the cases that need it are left out.
	Reopen func(e storage.Engine) storage.Engine
	// Beside opens one more engine on the same data, as another process has it. Nil:
	// there can be one only.
	Beside func() storage.Engine
	// Fault breaks the store below the open engines and repairs it before it returns;
	// calls made meanwhile may fail. Nil: there is nothing below.
	Fault func()
	// ShortestTTL is the least time to live that the store keeps exactly; 0 means a second.
	ShortestTTL time.Duration
	// NotLeaks are goroutines that Reopen, Beside or Fault leave behind on purpose.
	NotLeaks []goleak.Option
}

// A Case is one test of the suite.
type Case struct {
	Name string
	run  func(*session)
	time time.Duration       // 0 means caseTime
	need func(s *Store) bool // whether the store has what the case needs; nil: it does
}

func needReopen(s *Store) bool { return s.Reopen != nil }
func needBeside(s *Store) bool { return s.Beside != nil }
func needFault(s *Store) bool  { return s.Fault != nil }

// Run runs the case. A goroutine that outlives the closed engine fails it.
func (c Case) Run(t *testing.T, open func(t *testing.T) Store) {
	before := goleak.IgnoreCurrent()
	var s *session
	// Registered first, so it comes last: after the engine was closed and open's own cleanup.
	t.Cleanup(func() {
		if t.Failed() || s == nil {
			return
		}
		if err := goleak.Find(append([]goleak.Option{before}, s.store.NotLeaks...)...); err != nil {
			t.Error(err)
		}
	})
	limit := c.time
	if limit == 0 {
		limit = caseTime
	}
	store := open(t)
	if store.ShortestTTL == 0 {
		store.ShortestTTL = time.Second
	}
	s = newSession(t, store, limit)
	if c.need != nil && !c.need(&store) {
		return
	}
	c.run(s)
}

// A session is a running case.
type session struct {
	*testing.T
	ctx    context.Context // ends with the case's time
	store  Store
	engine storage.Engine // the one open now; reopen replaces it
	prefix string         // ends in "/"; all keys of the case are below it
}

func newSession(t *testing.T, store Store, limit time.Duration) *session {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	s := &session{T: t, ctx: ctx, store: store, engine: store.Engine}
	_, name, _ := strings.Cut(t.Name(), "/")
	s.prefix = "/registry/storagetest/" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(name)) + "-" + strings.ToLower(rand.Text()[:10]) + "/"
	t.Cleanup(func() {
		defer cancel()
		s.close(s.engine)
	})
	return s
}

func (s *session) close(e storage.Engine) {
	if err := e.Close(); err != nil && !errors.Is(err, storage.ErrClosed) {
		s.Errorf("close the engine: %v", err)
	}
}

// reopen ends the engine and opens its data again.
func (s *session) reopen() {
	s.engine = s.store.Reopen(s.engine)
}

// beside opens one more engine, closed with the case.
func (s *session) beside() storage.Engine {
	e := s.store.Beside()
	s.Cleanup(func() { s.close(e) })
	return e
}

// engines are all the case may use at the same time: two where there can be two.
func (s *session) engines() []storage.Engine {
	if s.store.Beside == nil {
		return []storage.Engine{s.engine}
	}
	return []storage.Engine{s.engine, s.beside()}
}

func (s *session) key(name string) string { return s.prefix + name }
