package h2

import (
	"encoding/binary"
	"time"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// await waits until the client sends something. The error says why nobody waits any
// more.
func (h *conn) await() error {
	in := &h.c.In
	if in.Buf != nil && in.Buf.Buffered() > 0 {
		return nil
	}
	for {
		timeout, err := h.beginWait()
		if err != nil {
			return err
		}
		ok := in.WaitFor(timeout)
		readErr := in.Err
		interruptedHere := h.endWait()
		switch {
		case ok:
			h.pinged = time.Time{}
			return nil
		case interruptedHere:
		case readErr == nil || !edge.IsInterrupted(readErr):
			return errClientLeft
		default:
			if err := h.waitedInVain(); err != nil {
				return err
			}
		}
	}
}

// beginWait says for how long to wait.
func (h *conn) beginWait() (time.Duration, error) {
	o := &h.c.Options
	h.mu.Lock()
	defer h.mu.Unlock()
	timeout := o.PingInterval
	switch {
	case h.err != nil:
		return 0, h.err
	case h.going == goAwayFinal && len(h.streams) == 0:
		return 0, errGoneAway
	case h.going == goAwayFirst:
		timeout = max(time.Until(h.goAwayAt.Add(goAwayWait)), time.Millisecond)
	case len(h.streams) == 0:
		timeout = max(o.IdleTimeout-time.Since(h.idle), time.Millisecond)
	case !h.pinged.IsZero():
		timeout = o.PingTimeout + h.timeForLocked()
	}
	h.waiting = true
	return timeout, nil
}

// endWait says whether the wait was interrupted.
func (h *conn) endWait() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = false
	if !h.cut {
		return false
	}
	h.cut = false
	_ = h.c.In.Resume()
	return true
}

// wakeReaderLocked has the reader think about what it waits for.
func (h *conn) wakeReaderLocked() {
	if h.waiting && !h.cut {
		h.cut = true
		h.c.In.Interrupt()
	}
}

// waitedInVain decides what to do about a silent client.
func (h *conn) waitedInVain() error {
	o := &h.c.Options
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.going == goAwayFirst:
		h.goAwayFinalLocked()
	case len(h.streams) == 0:
		if time.Since(h.idle) < o.IdleTimeout-o.IdleTimeout/4 {
			return nil
		}
		if got := h.acknowledgedLocked(); got-h.idleGot >= edge.WriteSlice && got < h.sent {
			h.idle, h.idleGot = time.Now(), got // answers are still on their way
			return nil
		}
		h.goAwayFinalLocked()
	case h.pinged.IsZero():
		h.pinged = time.Now()
		h.appendPing(false, sentPing(h.sent))
	default:
		return errClientLeft // it does not answer
	}
	h.flushSoonLocked()
	return nil
}

// sentPing is a PING whose answer tells that the client has what was sent before it.
func sentPing(sent int64) (data [8]byte) {
	binary.BigEndian.PutUint64(data[:], uint64(sent)) //nolint:gosec // not negative
	return data
}
