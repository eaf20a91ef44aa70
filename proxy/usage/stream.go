package usage

import "sync/atomic"

// Stream is a watch, or another response that goes on, whose cost is counted while it does. Its
// methods are safe for concurrent use.
type Stream struct {
	// Asker is whose it is, with bounded names.
	Asker Asker
	// UserAgent is the whole of it.
	UserAgent string
	// Price is what a write costs.
	price Price
	// upstream tells that its bytes come from the upstream.
	upstream bool
	// end ends it soon.
	end func()

	owner         *Usage
	writes, bytes atomic.Int64
	// What of them was counted; guarded by streams of owner.
	countedWrites, countedBytes int64
	// charge is called with the bytes that came from the upstream since it was called last;
	// nil if nobody wants to know.
	charge func(bytes int64) (over bool)
	// outdated is asked by Outdated; nil for never.
	outdated func() bool
}

// StreamOptions say what kind of Stream it is.
type StreamOptions struct {
	Price Price // of a write
	// Upstream tells that its bytes come from the upstream. Charge, if set, is told then of
	// how many since it was last told; the stream is ended when they were too many.
	Upstream bool
	Charge   func(bytes int64) (over bool)
	// Outdated, if set, reports whether the stream must end because the settings that it began
	// with have changed. It is not called concurrently.
	Outdated func() bool
	// End ends the stream soon, if it can be ended. It must not block.
	End func()
}

// Open counts a stream, one request, that has begun. It has to be closed.
func (u *Usage) Open(a Asker, o StreamOptions) *Stream {
	s := &Stream{Asker: a.bounded().clone(), UserAgent: a.UserAgent, price: o.Price, upstream: o.Upstream, end: o.End, charge: o.Charge, outdated: o.Outdated, owner: u}
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

// Outdated reports whether the stream must end because the settings that it began with have
// changed. Only the function passed to Usage.End may call it.
func (s *Stream) Outdated() bool { return s.outdated != nil && s.outdated() }

// Close counts the rest.
func (s *Stream) Close() {
	u := s.owner
	u.streams.Lock()
	defer u.streams.Unlock()
	delete(u.streams.open, s)
	s.count()
}

// collect counts what all streams have sent since it was last called.
func (u *Usage) collect() {
	u.streams.Lock()
	var over []*Stream
	for s := range u.streams.open {
		if s.count() && s.end != nil {
			over = append(over, s)
		}
	}
	u.streams.Unlock()
	for _, s := range over {
		s.end()
	}
}

// count counts what was sent since, and reports whether it was too much. The caller holds
// streams.
func (s *Stream) count() (over bool) {
	writes, bytes := s.writes.Load(), s.bytes.Load()
	more, sent := writes-s.countedWrites, bytes-s.countedBytes
	if more == 0 {
		return false
	}
	s.countedWrites, s.countedBytes = writes, bytes
	cost := Cost{Bytes: sent, Work: s.price.Of(more, sent)}
	if s.upstream {
		cost.UpstreamBytes = float64(sent)
		if s.charge != nil {
			over = s.charge(sent)
		}
	}
	s.owner.opts.Processor.did(cost.Work)
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.open.add(&s.Asker, &cost)
	return over
}

// End ends the open streams that match, soon, and says how many those are.
func (u *Usage) End(match func(*Stream) bool) (n int) {
	u.streams.Lock()
	var found []*Stream
	for s := range u.streams.open {
		if s.end != nil && match(s) {
			found = append(found, s)
		}
	}
	u.streams.Unlock()
	for _, s := range found {
		s.end()
	}
	return len(found)
}
