package storagetest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// A watchLog is all that one watch has delivered, over reopenings.
type watchLog struct {
	prefix  string
	after   uint64 // where the first watch began
	batches []storage.Batch
}

func (l *watchLog) revision() uint64 {
	if len(l.batches) == 0 {
		return l.after
	}
	return l.batches[len(l.batches)-1].Revision
}

func (l *watchLog) events() []storage.Event {
	var out []storage.Event
	for _, b := range l.batches {
		out = append(out, b.Events...)
	}
	return out
}

// check returns the violations of the guarantees of a watch. The names are those of the etcd
// project.
func (l *watchLog) check(h *history) []error {
	var broken []error
	for name, check := range map[string]func(*history) error{
		"ordered": l.ordered, "unique": l.unique, "atomic": l.atomic, "bookmarkable": l.bookmarkable, "reliable": l.reliable,
	} {
		if err := check(h); err != nil {
			broken = append(broken, fmt.Errorf("watch of %s after %d is not %s: %w", l.prefix, l.after, name, err))
		}
	}
	return broken
}

// ordered: events come in the order of their revisions, and none from before the start.
func (l *watchLog) ordered(*history) error {
	last := l.after
	for _, ev := range l.events() {
		if ev.KV.Revision < last || ev.KV.Revision == l.after {
			return fmt.Errorf("revision %d after %d", ev.KV.Revision, last)
		}
		last = ev.KV.Revision
	}
	return nil
}

// unique: no change of a key comes twice.
func (l *watchLog) unique(*history) error {
	type change struct {
		key string
		rev uint64
	}
	seen := map[change]bool{}
	for _, ev := range l.events() {
		c := change{ev.KV.Key, ev.KV.Revision}
		if seen[c] {
			return fmt.Errorf("%s at %d came twice", c.key, c.rev)
		}
		seen[c] = true
	}
	return nil
}

// atomic: the events of one revision are in one batch.
func (l *watchLog) atomic(*history) error {
	last := l.after
	for _, b := range l.batches {
		if len(b.Events) == 0 {
			continue
		}
		if b.Events[0].KV.Revision <= last {
			return fmt.Errorf("revision %d is in two batches", last)
		}
		last = b.Events[len(b.Events)-1].KV.Revision
	}
	return nil
}

// bookmarkable: a batch's revision is no promise broken later, and never falls.
func (l *watchLog) bookmarkable(*history) error {
	complete := l.after
	for _, b := range l.batches {
		for _, ev := range b.Events {
			if ev.KV.Revision <= complete {
				return fmt.Errorf("an event of %d after %d was told to be complete", ev.KV.Revision, complete)
			}
			if ev.KV.Revision > b.Revision {
				return fmt.Errorf("an event of %d in a batch up to %d", ev.KV.Revision, b.Revision)
			}
		}
		// Only a watch from the future may report revisions before its start.
		if b.Revision < complete && (complete > l.after || len(b.Events) > 0) {
			return fmt.Errorf("revision %d after %d", b.Revision, complete)
		}
		complete = max(complete, b.Revision)
	}
	return nil
}

// reliable: every change is there, as it happened, with the previous value.
func (l *watchLog) reliable(h *history) error {
	want := showEvents(h.events(l.prefix, l.after, l.revision()))
	got := showEvents(l.events())
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("event %d is missing: %s", i, want[i])
		case i >= len(want):
			return fmt.Errorf("event %d never happened: %s", i, got[i])
		case want[i] != got[i]:
			return fmt.Errorf("event %d is %s, want %s", i, got[i], want[i])
		}
	}
	return nil
}

// A recorder reads a watch in a goroutine of its own until logOf says how far.
type recorder struct {
	engine storage.Engine
	resume int           // reopen the watch after that many batches, 0 for never
	gate   chan struct{} // nothing is read before it is closed; nil: read at once
	log    watchLog      // the goroutine's, until done is closed
	err    error         // written before done is closed
	done   chan struct{}

	mu     sync.Mutex
	w      storage.Watcher // guarded by mu
	target uint64          // guarded by mu; 0 until logOf
}

// record starts a recorder; the case ends it.
func (s *session) record(e storage.Engine, prefix string, after uint64, resume int, gate chan struct{}) *recorder {
	r := &recorder{engine: e, resume: resume, gate: gate, log: watchLog{prefix: prefix, after: after}, done: make(chan struct{})}
	if err := r.open(s.ctx); err != nil {
		s.Fatalf("watch %s: %v", prefix, err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	go r.run(ctx)
	s.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// open begins the watch behind what was delivered.
func (r *recorder) open(ctx context.Context) error {
	w, err := r.engine.Watch(ctx, storage.WatchOptions{Prefix: r.log.prefix, After: r.log.revision()})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w = w
	if r.target != 0 {
		w.RequestProgress()
	}
	return nil
}

func (r *recorder) run(ctx context.Context) {
	defer close(r.done)
	defer func() { r.w.Close() }() // only this goroutine replaces it
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
		}
	}
	for n := 1; !r.finished(); n++ {
		b, err := r.w.Next(ctx)
		if err != nil {
			r.err = fmt.Errorf("watch of %s after %d, at %d: %w", r.log.prefix, r.log.after, r.log.revision(), err)
			return
		}
		clone := storage.Batch{Revision: b.Revision}
		for _, ev := range b.Events {
			clone.Events = append(clone.Events, cloneEvent(ev))
		}
		r.log.batches = append(r.log.batches, clone)
		if r.resume > 0 && n%r.resume == 0 {
			r.w.Close()
			if r.err = r.open(ctx); r.err != nil {
				return
			}
		}
	}
}

func (r *recorder) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.target != 0 && r.log.revision() >= r.target
}

// logOf lets a recorder end at a revision and returns what it has recorded.
func (s *session) logOf(r *recorder, target uint64) *watchLog {
	s.Helper()
	r.mu.Lock()
	r.target = target
	r.w.RequestProgress()
	r.mu.Unlock()
	<-r.done
	if r.err != nil {
		s.Fatal(r.err)
	}
	return &r.log
}

// wantReliable lets recorders end at a revision, and checks the guarantees of their watches.
func (s *session) wantReliable(h *history, target uint64, recorders ...*recorder) {
	s.Helper()
	for _, r := range recorders {
		for _, err := range s.logOf(r, target).check(h) {
			s.Error(err)
		}
	}
}

// watchedHistory returns the history below the case's prefix as a new watch delivers it, starting
// at a revision before its first key.
func (s *session) watchedHistory(e storage.Engine, after uint64) *history {
	s.Helper()
	target, err := e.CurrentRevision(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	r := s.record(e, s.prefix, after, 0, nil)
	h := historyOf(s.prefix, s.logOf(r, target).events())
	s.wantReliable(h, target, r)
	res, err := e.Range(s.ctx, storage.RangeOptions{Prefix: s.prefix})
	if err != nil {
		s.Fatal(err)
	}
	got, want := describeAll(res.KVs), describeAll(h.at(res.Revision))
	if got != want {
		s.Errorf("the store holds\n%s\nits history leads to\n%s", got, want)
	}
	return h
}

func describeAll(kvs []storage.KeyValue) string {
	lines := make([]string, len(kvs))
	for i, kv := range kvs {
		lines[i] = "  " + showKV(kv)
	}
	return strings.Join(lines, "\n")
}
