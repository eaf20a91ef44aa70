package cachetest

import "time"

// Break ends all open watches with err; nil is a clean end.
func (s *Source) Break(err error) { s.locked(func() { s.breakLocked(err) }) }

func (s *Source) breakLocked(err error) {
	s.eachStreamLocked(func(st *stream) { st.broken, st.err = true, err })
}

// eachStreamLocked changes the open watches and wakes them.
func (s *Source) eachStreamLocked(change func(*stream)) {
	for st := range s.mu.streams {
		change(st)
	}
	s.wakeLocked()
}

func (s *Source) eachStream(change func(*stream)) { s.locked(func() { s.eachStreamLocked(change) }) }

// SetDown breaks all watches and fails all calls with ErrDown, or ends that.
func (s *Source) SetDown(down bool) {
	s.locked(func() {
		s.mu.faults.down = down
		s.freezeLocked(down)
		if down {
			s.breakLocked(ErrDown)
		}
	})
}

// SetSilent makes open watches deliver nothing and calls hang, as on a silently lost connection, or
// ends that.
func (s *Source) SetSilent(silent bool) {
	s.locked(func() {
		s.mu.faults.silent = silent
		s.freezeLocked(silent)
		s.wakeLocked()
	})
}

func (s *Source) freezeLocked(frozen bool) {
	s.mu.frozen = time.Time{}
	if frozen {
		s.mu.frozen = time.Now()
	}
}

// Hold keeps the currently open watches from delivering anything until Release; later ones deliver.
// It simulates a watch that lags behind its server.
func (s *Source) Hold() { s.eachStream(func(st *stream) { st.held = true }) }

// HoldAfter is Hold once the currently open watches have delivered n more events, even between two
// of one version.
func (s *Source) HoldAfter(n int) { s.eachStream(func(st *stream) { st.hold, st.left = true, n }) }

// Cut ends the currently open watches with ErrDown once they have delivered n more events, even
// between two of one version.
func (s *Source) Cut(n int) { s.eachStream(func(st *stream) { st.cut, st.left = true, n }) }

// Release ends Hold.
func (s *Source) Release() { s.eachStream(func(st *stream) { st.held = false }) }

// HoldBookmarks stops bookmarks, except those that end initial events, or resumes them.
func (s *Source) HoldBookmarks(hold bool) { s.locked(func() { s.mu.faults.holdBookmarks = hold }) }

// NoTimeouts makes the source reject watches with TimeoutSeconds, with which the cache probes for
// versions and extends its history.
func (s *Source) NoTimeouts() { s.locked(func() { s.mu.faults.noTimeouts = true }) }

// NoWatchList makes the source reject SendInitialEvents.
func (s *Source) NoWatchList() { s.locked(func() { s.mu.faults.noWatchList = true }) }

// NoCurrentVersion makes CurrentVersion unsupported.
func (s *Source) NoCurrentVersion() { s.locked(func() { s.mu.faults.noVersion = true }) }

// Fail makes the next calls of a method ("list", "page" for lists with a continue token, "watch",
// "version") fail with these errors, one each.
func (s *Source) Fail(method string, errs ...error) {
	s.locked(func() { s.mu.faults.fail[method] = append(s.mu.faults.fail[method], errs...) })
}

// Compact drops the history up to the current revision: reads and watches from below it have
// expired.
func (s *Source) Compact() { s.locked(func() { s.mu.compacted = s.mu.rev }) }

// Backup is the state of a Source at one time.
type Backup struct{ rev, compacted uint64 }

// Backup returns what Rewind needs. A Source that was rewound cannot return to a later Backup.
func (s *Source) Backup() (b *Backup) {
	s.locked(func() { b = &Backup{s.mu.rev, s.mu.compacted} })
	return b
}

// Rewind restores a backup, like an etcd restore, and breaks all watches.
func (s *Source) Rewind(b *Backup) {
	s.RewindSilently(b)
	s.Break(ErrDown)
}

// RewindSilently restores a backup. Watches stay open and are silent until the revision has passed
// what they have seen.
func (s *Source) RewindSilently(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rev, s.mu.compacted = b.rev, b.compacted
	for gvr, r := range s.mu.resources {
		s.mu.resources[gvr] = r.until(b.rev)
	}
}

// Watches returns the number of open watches, including streaming lists.
func (s *Source) Watches() (n int) {
	s.locked(func() { n = len(s.mu.streams) })
	return n
}

// Calls returns the calls since the last Calls, one line each with its options.
func (s *Source) Calls() (calls []string) {
	s.locked(func() { calls, s.mu.calls = s.mu.calls, nil })
	return calls
}
