package h2

import (
	"sync"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// flusher is whoever writes what is queued: flushing says that somebody does, alone; flushed tells
// when that is over.
type flusher struct {
	flushing bool
	flushed  sync.Cond
}

// flushLocked sees to it that what is queued is written: here, unless somebody does
// already. Callers that must not wait for the client leave what it does not take at once to
// another goroutine.
func (h *conn) flushLocked(wait bool) {
	if h.isFlushedLocked() {
		return
	}
	if wait || h.Out.CanWriteNow() {
		h.flushRoundLocked(wait)
	}
	h.flushSoonLocked() // what others have queued meanwhile
}

// flushSoonLocked sees to it that what is queued is written, and not here.
func (h *conn) flushSoonLocked() {
	if !h.isFlushedLocked() {
		h.handOverLocked(0)
	}
}

// isFlushedLocked reports whether nothing is queued that nobody writes.
func (h *conn) isFlushedLocked() bool {
	return h.flusher.flushing || len(h.pending) == 0 || h.err != nil
}

// flush has what is queued leave, of all streams.
func (h *conn) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked(false)
}

// flushRoundLocked writes what is queued, while mu is not held. Nobody else writes. If
// it is not to wait for the client, what that does not take is handed over.
func (h *conn) flushRoundLocked(wait bool) {
	pending := h.pending
	h.pending, h.queued, h.flusher.flushing = h.spare[:0], 0, true
	h.spare = nil
	h.wakeNextLocked()
	h.mu.Unlock()
	rest, err := h.write(pending, wait)
	for _, b := range pending {
		h.Buffers.Put(b)
	}
	if err != nil {
		h.fail(err)
	}
	h.mu.Lock()
	clear(pending)
	h.spare = pending[:0]
	if rest > 0 && err == nil && h.err == nil { // else the connection may be over for all
		h.handOverLocked(rest)
		return
	}
	h.roundOverLocked()
}

func (h *conn) write(bufs []*edge.Buffer, wait bool) (rest int, err error) {
	if h.Panics.Run("connection", func() { rest, err = h.Out.WriteBuffers(bufs, wait) }) != nil {
		err = edge.ErrPanicked
	}
	return rest, err
}

// handOverLocked has a goroutine write until nothing is queued: first the rest bytes
// that the client has not taken. The connection does not end before the goroutine,
// which waits for the client no longer than the write timeout.
func (h *conn) handOverLocked(rest int) {
	h.flusher.flushing = true // from here on
	account := h.Account()
	h.users.Add(1)
	h.Buffers.Hold(account, int64(rest))
	h.Panics.Go(nil, "connection", func() {
		defer h.release()
		if rest > 0 {
			err := h.Out.Settle()
			h.Buffers.Hold(account, -int64(rest))
			if err != nil {
				h.fail(err)
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for len(h.pending) > 0 && h.err == nil {
			h.flushRoundLocked(true)
		}
		h.roundOverLocked()
	})
}

// roundOverLocked lets others write.
func (h *conn) roundOverLocked() {
	h.flusher.flushing = false
	if h.err != nil {
		h.discardLocked()
	}
	h.wakeNextLocked()
	h.flusher.flushed.Broadcast()
}

// discardLocked gives back what will not be written.
func (h *conn) discardLocked() {
	if h.flusher.flushing {
		return // whoever writes uses it
	}
	for _, b := range h.pending {
		h.Buffers.Put(b)
	}
	h.pending, h.queued = nil, 0
}
