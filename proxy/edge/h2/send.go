package h2

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// send queues s as the client takes it, and waits for that no longer than the write
// timeout for each half MiB; that of an Upgrade until its own deadline. end ends the
// stream with it, flush has it leave at once.
func (st *stream) send(s *pieces, end, flush bool) error {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	var deadline time.Time
	slice := 0 // bytes left when the deadline is set again
	moved, got := int64(0), int64(0)
	for {
		if err := st.unsendableLocked(); err != nil {
			return st.giveUpLocked(err)
		}
		// What is small does not line up, but what has, waits for its turn.
		if h.firstLocked(st) || s.left <= quantum && !st.inLine {
			n := h.sendableLocked(st, s.left)
			h.queueDataLocked(st, s, n, end)
			if n > 0 || s.left == 0 || st.window <= 0 {
				h.leaveLineLocked(st)
			}
			h.wakeNextLocked()
		}
		if s.left == 0 && (!end || st.sentEnd) {
			break
		}
		if len(h.pending) > 0 && !h.flushing {
			if h.aloneLocked(st) {
				h.flushLocked(true)
				continue
			}
			h.flushSoonLocked()
		}
		// That others have their turn is not the client's fault.
		turns := st.window > 0 && h.sent-moved >= edge.WriteSlice
		switch {
		case st.upgraded:
			deadline = st.deadline
		case deadline.IsZero() || s.left <= slice || turns || h.acknowledgedLocked()-got >= edge.WriteSlice:
			deadline, slice = time.Now().Add(h.c.Options.WriteTimeout), s.left-edge.WriteSlice
			moved, got = h.sent, h.acknowledgedLocked()
		}
		inTime, mayWait := st.waitAccountedLocked(deadline)
		switch {
		case !mayWait:
			h.c.Metrics.UnreadStreams.Inc()
			h.resetLocked(st, http2.ErrCodeEnhanceYourCalm, errTooManyWaiting)
			return st.giveUpLocked(errTooManyWaiting)
		case inTime:
		case st.upgraded:
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		case (st.window <= 0 || h.sent-moved < edge.WriteSlice) && h.acknowledgedLocked()-got < edge.WriteSlice:
			h.resetLocked(st, st.resetCode(), os.ErrDeadlineExceeded)
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		}
	}
	if flush {
		h.flushLocked(false)
	}
	return nil
}

// giveUpLocked leaves what is queued, and the turn, to others.
func (st *stream) giveUpLocked(err error) error {
	st.h.leaveLineLocked(st)
	st.h.wakeNextLocked()
	st.h.flushSoonLocked()
	return err
}

// unsendableLocked is why nothing more can be sent on the stream.
func (st *stream) unsendableLocked() error {
	switch {
	case st.h.err != nil:
		return st.h.err
	case st.h.ending != nil:
		return st.h.ending
	case st.err != nil:
		return st.err
	case st.sentEnd:
		return edge.ErrStreamOver
	}
	return nil
}

var errTooManyWaiting = errors.New("the user has more answers wait than a share of the memory for that")

// waitAccountedLocked is waitLocked. An answer, which is the client's to take, counts while it
// waits, be it for a window or, where they are open, for the client to read: there may be as many
// of them on each connection as it may have streams.
func (st *stream) waitAccountedLocked(deadline time.Time) (inTime, mayWait bool) {
	h := st.h
	if st.upgraded || st.long {
		return st.waitLocked(deadline), true
	}
	a, n := st.account, int64(edge.WaitingStream)
	if a == nil {
		a = h.c.Holder()
	}
	if st.headerSize > edge.SmallHead {
		n += int64(st.headerSize)
	}
	if !h.c.Buffers.AddWaiting(a, n) {
		return false, false
	}
	defer h.c.Buffers.RemoveWaiting(a, n)
	return st.waitLocked(deadline), true
}

// waitLocked waits until there may be a window and room, or until the stream ends. It
// returns false when the deadline has passed, if there is one. The stream stays in line.
func (st *stream) waitLocked(deadline time.Time) bool {
	h := st.h
	st.yield()
	if st.wake == nil {
		st.wake = make(chan struct{}, 1)
	}
	h.lineUpLocked(st)
	h.mu.Unlock()
	defer h.mu.Lock()
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-st.wake:
		return true
	case <-late:
		return false
	}
}

// wakeLocked has a goroutine that waits in waitLocked look again.
func (st *stream) wakeLocked() {
	if st.wake == nil {
		return
	}
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// wakeNextLocked lets the first in line go on, if it could.
func (q *queue) wakeNextLocked() {
	if len(q.line) > 0 && q.window > 0 && q.roomLocked() > 0 {
		q.line[0].wakeLocked()
	}
}

// firstLocked says whether no other stream is before this one.
func (q *queue) firstLocked(st *stream) bool { return len(q.line) == 0 || q.line[0] == st }

// aloneLocked says whether no other stream is in line.
func (q *queue) aloneLocked(st *stream) bool {
	return len(q.line) == 0 || len(q.line) == 1 && st.inLine
}

// lineUpLocked has a stream wait for its turn. That it has no window of its own is not for
// the line.
func (q *queue) lineUpLocked(st *stream) {
	if st.window > 0 && !st.inLine {
		st.inLine = true
		q.line = append(q.line, st)
	}
}

// leaveLineLocked is for a stream that had its turn, or waits no more.
func (q *queue) leaveLineLocked(st *stream) {
	if st.inLine {
		st.inLine = false
		q.line = slices.DeleteFunc(q.line, func(other *stream) bool { return other == st })
	}
}
