package h2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// await waits until the client sends something. The error says why the waiting is over.
func (h *conn) await() error {
	in := &h.In
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
	o := &h.Options
	h.mu.Lock()
	defer h.mu.Unlock()
	timeout := o.PingInterval
	switch {
	case h.err != nil:
		return 0, h.err
	case h.goAway.state == goAwayFinal && len(h.streams) == 0:
		return 0, errGoneAway
	case h.goAway.state == goAwayFirst:
		timeout = max(time.Until(h.goAway.at.Add(goAwayWait)), time.Millisecond)
	case len(h.streams) == 0:
		timeout = max(o.IdleTimeout-time.Since(h.idle), time.Millisecond)
	case !h.pinged.IsZero():
		timeout = o.PingTimeout + h.delivery.timeFor(o.WriteTimeout)
	}
	h.wait.waiting = true
	return timeout, nil
}

// endWait reports whether the wait was interrupted.
func (h *conn) endWait() (interrupted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	interrupted = h.wait.interrupted
	h.wait = waitState{}
	if interrupted {
		_ = h.In.Resume()
	}
	return interrupted
}

// waitedInVain decides what to do about a silent client.
func (h *conn) waitedInVain() error {
	o := &h.Options
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.goAway.state == goAwayFirst:
		h.goAwayFinalLocked()
	case len(h.streams) == 0:
		if time.Since(h.idle) < o.IdleTimeout-o.IdleTimeout/4 {
			return nil
		}
		if got := h.delivery.acknowledged(); got-h.idleGot >= edge.WriteSlice && got < h.delivery.sent {
			h.idle, h.idleGot = time.Now(), got // responses are still on their way
			return nil
		}
		h.goAwayFinalLocked()
	case h.pinged.IsZero():
		h.pinged = time.Now()
		h.pingLocked()
	default:
		return errClientLeft // it does not answer
	}
	h.flushSoonLocked()
	return nil
}

// close ends the connection for the goroutine that reads.
func (h *conn) close(err error) {
	report, linger := false, h.Options.LingerTimeout
	var ce http2.ConnectionError
	switch {
	case errors.Is(err, errGoneAway):
		// The client may still read what is on its way, and say so: it gets the time of the answer
		// to a PING.
		report = true
		h.mu.Lock()
		linger = max(linger, h.Options.PingTimeout+h.delivery.timeFor(h.Options.WriteTimeout))
		h.mu.Unlock()
	case errors.As(err, &ce):
		report = true
		h.mu.Lock()
		if h.goAway.state != goAwayFinal {
			h.goAway.lastID = h.maxID
		}
		if h.err == nil {
			h.appendGoAway(h.goAway.lastID, http2.ErrCode(ce))
			h.ending = err
		}
		h.mu.Unlock()
	}
	if report {
		h.flushAll()
	}
	h.fail(err)
	if report {
		h.Linger(linger)
		h.Abort() // requests may go on for a while
	}
	h.lease.timer.Stop()
	h.release()
}

// flushAll writes what is queued. After an error nothing more of the streams is.
func (h *conn) flushAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.err == nil && (h.flusher.flushing || len(h.pending) > 0) {
		if h.flusher.flushing {
			h.flusher.flushed.Wait()
		} else {
			h.flushRoundLocked(true)
		}
	}
}
