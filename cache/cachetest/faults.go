package cachetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrDown is what calls return while the source is down.
var ErrDown = errors.New("cachetest: connection refused")

// faults are what is wrong with the source at present.
type faults struct {
	down, silent           bool
	noWatchList, noVersion bool
	holdBookmarks          bool
	fail                   map[string][]error // by call: errors of the next calls
}

// Break ends all open watches with err; nil is a clean end.
func (s *Source) Break(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakLocked(err)
}

func (s *Source) breakLocked(err error) {
	for st := range s.mu.streams {
		st.broken, st.err = true, err
	}
	s.wakeLocked()
}

// SetDown breaks all watches and refuses all calls with ErrDown, or ends that.
func (s *Source) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults.down = down
	s.freezeLocked(down)
	if down {
		s.breakLocked(ErrDown)
	}
}

// SetSilent makes open watches deliver nothing and calls hang, as on a
// connection whose other end is gone without a word, or ends that.
func (s *Source) SetSilent(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults.silent = silent
	s.freezeLocked(silent)
	s.wakeLocked()
}

func (s *Source) freezeLocked(frozen bool) {
	s.mu.frozen = time.Time{}
	if frozen {
		s.mu.frozen = time.Now()
	}
}

// Hold keeps the watches that are open now from delivering anything until
// Release; others go on: a feed that lags behind its server.
func (s *Source) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		st.held = true
	}
}

// HoldAfter is Hold when the watches that are open now have delivered n more events, also
// between two of one version.
func (s *Source) HoldAfter(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		st.hold, st.left = true, n
	}
}

// Cut ends the watches that are open now with ErrDown when they have delivered n more
// events, also between two of one version.
func (s *Source) Cut(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		st.cut, st.left = true, n
	}
}

// Release ends what Hold began.
func (s *Source) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		st.held = false
	}
	s.wakeLocked()
}

// HoldBookmarks stops bookmarks (not the one that ends initial events), or lets
// them go on.
func (s *Source) HoldBookmarks(hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults.holdBookmarks = hold
}

// NoWatchList makes the source refuse SendInitialEvents.
func (s *Source) NoWatchList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults.noWatchList = true
}

// NoCurrentVersion makes the source unable to tell its current version.
func (s *Source) NoCurrentVersion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults.noVersion = true
}

// Fail makes the next calls of a method ("list", "page" for a list with a
// continue token, "watch", "version") fail with these errors, one each.
func (s *Source) Fail(method string, errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.faults.fail == nil {
		s.mu.faults.fail = make(map[string][]error)
	}
	s.mu.faults.fail[method] = append(s.mu.faults.fail[method], errs...)
}

// Compact forgets history up to the current revision: reads and watches from
// below it are refused as expired.
func (s *Source) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.compacted = s.mu.rev
}

// Backup is the state of a Source at one time.
type Backup struct {
	rev, compacted uint64
	logs           map[schema.GroupVersionResource][]change
	live           map[schema.GroupVersionResource]map[string]change
}

// Backup saves the state for Rewind.
func (s *Source) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{
		rev: s.mu.rev, compacted: s.mu.compacted,
		logs: make(map[schema.GroupVersionResource][]change),
		live: make(map[schema.GroupVersionResource]map[string]change),
	}
	for gvr, r := range s.mu.resources {
		b.logs[gvr] = slices.Clone(r.log)
		b.live[gvr] = maps.Clone(r.live)
	}
	return b
}

// Rewind goes back to a backup, as an etcd that was restored, and breaks all
// watches.
func (s *Source) Rewind(b *Backup) {
	s.RewindSilently(b)
	s.Break(ErrDown)
}

// RewindSilently goes back to a backup; watches stay open and are silent until
// the revision has passed what they have seen.
func (s *Source) RewindSilently(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rev, s.mu.compacted = b.rev, b.compacted
	for gvr, r := range s.mu.resources {
		r.log = slices.Clone(b.logs[gvr])
		r.live = maps.Clone(b.live[gvr])
	}
}

// Watches is the number of open watches, streaming lists included.
func (s *Source) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.streams)
}

// Calls returns the calls since the last Calls, one line each: what was called
// with which options.
func (s *Source) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.mu.calls
	s.mu.calls = nil
	return calls
}

// enter begins a call: it is logged and meets the faults that are in force.
func (s *Source) enter(ctx context.Context, method, call string) error {
	s.mu.Lock()
	s.mu.calls = append(s.mu.calls, call)
	if errs := s.mu.faults.fail[method]; len(errs) > 0 {
		s.mu.faults.fail[method] = errs[1:]
		s.mu.Unlock()
		return errs[0]
	}
	down := s.mu.faults.down
	s.mu.Unlock()
	if down {
		return ErrDown
	}
	return s.whileSilent(ctx)
}

// whileSilent blocks as long as the source is silent.
func (s *Source) whileSilent(ctx context.Context) error {
	for {
		s.mu.Lock()
		silent, changed := s.mu.faults.silent, s.mu.changed
		s.mu.Unlock()
		if !silent {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
