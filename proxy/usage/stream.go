package usage

import "sync/atomic"

// Stream is a watch, or another response that continues, whose cost is accounted for meanwhile. Its
// methods are safe for concurrent use.
type Stream struct {
	// Client has bounded names; UserAgent is complete.
	Client    Client
	UserAgent string

	opts          StreamOptions
	owner         *Usage
	writes, bytes atomic.Int64
	// countedWrites and countedBytes are the writes and bytes that are already accounted for;
	// guarded by streams of owner.
	countedWrites, countedBytes int64
}

// StreamOptions describe a Stream.
type StreamOptions struct {
	Price Price // of a write
	// Upstream is true if the bytes come from the upstream. Charge, if not nil, is then called with
	// the bytes since its last call; the stream ends if it returns true.
	Upstream bool
	Charge   func(bytes int64) (over bool)
	// Outdated, if not nil, reports whether the stream must end because the settings that it began
	// with have changed. It is not called concurrently.
	Outdated func() bool
	// End ends the stream soon; nil if it cannot be ended. It must not block.
	End func()
}

// Open accounts for a stream that has begun. It must be closed.
func (u *Usage) Open(c Client, o StreamOptions) *Stream {
	s := &Stream{Client: c.bounded().clone(), UserAgent: c.UserAgent, opts: o, owner: u}
	u.streams.Lock()
	defer u.streams.Unlock()
	u.streams.open[s] = struct{}{}
	return s
}

// Wrote counts a write of so many bytes. It costs next to nothing.
func (s *Stream) Wrote(bytes int) {
	s.writes.Add(1)
	s.bytes.Add(int64(bytes))
}

// Outdated reports whether the stream must end because the settings that it began with have changed.
// Only the function passed to Usage.End may call it.
func (s *Stream) Outdated() bool { return s.opts.Outdated != nil && s.opts.Outdated() }

// Close accounts for the rest.
func (s *Stream) Close() {
	u := s.owner
	u.streams.Lock()
	defer u.streams.Unlock()
	delete(u.streams.open, s)
	s.count()
}

// collect accounts for what all streams have sent since the last call.
func (u *Usage) collect() { u.End((*Stream).count) }

// End ends the open streams that match, soon, and returns how many those are.
func (u *Usage) End(match func(*Stream) bool) int {
	u.streams.Lock()
	var found []*Stream
	for s := range u.streams.open {
		if match(s) && s.opts.End != nil {
			found = append(found, s)
		}
	}
	u.streams.Unlock()
	for _, s := range found {
		s.opts.End()
	}
	return len(found)
}

// count accounts for what was sent since the last call, and reports whether it was too much. The
// caller holds streams.
func (s *Stream) count() (over bool) {
	writes, bytes := s.writes.Load(), s.bytes.Load()
	more, sent := writes-s.countedWrites, bytes-s.countedBytes
	if more == 0 {
		return false
	}
	s.countedWrites, s.countedBytes = writes, bytes
	cost := Cost{Bytes: sent, Work: s.opts.Price.Of(more, sent)}
	if s.opts.Upstream {
		cost.UpstreamBytes = float64(sent)
		over = s.opts.Charge != nil && s.opts.Charge(sent)
	}
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.open.add(&s.Client, &cost)
	return over
}
