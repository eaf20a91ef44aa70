package h2

import "time"

// flushRoundLocked writes what is queued, while mu is not held. Nobody else writes. If
// it is not to wait for the client, what that does not take is handed over.
func (q *queue) flushRoundLocked(wait bool) {
	pending := q.pending
	q.pending, q.queued, q.flushing = q.spare[:0], 0, true
	q.spare = nil
	q.wakeNextLocked()
	q.h.mu.Unlock()
	rest, err := q.h.c.Out.WriteBuffers(pending, wait)
	for _, b := range pending {
		q.h.c.Buffers.Put(b)
	}
	if err != nil {
		q.h.fail(err)
	}
	q.h.mu.Lock()
	clear(pending)
	q.spare = pending[:0]
	if rest > 0 && err == nil && q.h.err == nil { // else the connection may be over for all
		q.handOverLocked(rest)
		return
	}
	q.roundOverLocked()
}

// roundOverLocked lets others write.
func (q *queue) roundOverLocked() {
	q.flushing = false
	if q.h.err != nil {
		q.discardLocked()
	}
	q.wakeNextLocked()
	q.flushed.Broadcast()
}

// flushLocked sees to it that what is queued is written: here, unless somebody does
// already. Who must not wait for the client leaves what it does not take at once to
// another goroutine.
func (q *queue) flushLocked(wait bool) {
	if q.flushing || len(q.pending) == 0 || q.h.err != nil {
		return
	}
	if wait || q.h.c.Out.Now.Raw != nil {
		q.flushRoundLocked(wait)
	}
	q.flushSoonLocked() // what others have queued meanwhile
}

// flushSoonLocked sees to it that what is queued is written, and not here.
func (q *queue) flushSoonLocked() {
	if q.flushing || len(q.pending) == 0 || q.h.err != nil {
		return
	}
	q.handOverLocked(0)
}

// handOverLocked has a goroutine write until nothing is queued: first the rest bytes
// that the client has not taken. The connection does not end before the goroutine,
// which waits for the client no longer than the write timeout.
func (q *queue) handOverLocked(rest int) {
	q.flushing = true // from here on
	h, buffers, account := q.h, &q.h.c.Buffers, q.h.c.Holder()
	h.users.Add(1)
	buffers.Hold(account, int64(rest))
	h.c.Panics.Go(nil, "connection", func() {
		defer h.release()
		var err error
		if rest > 0 {
			err = h.c.Out.Settle()
			buffers.Hold(account, -int64(rest))
		}
		if err != nil {
			h.fail(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for len(q.pending) > 0 && h.err == nil {
			q.flushRoundLocked(true)
		}
		q.roundOverLocked()
	})
}

// flushHere is for the goroutine that reads, before it waits. It does not read on
// before the client has taken some of what is queued, if that is more than answers may
// take: a client that sends much before it reads must not wait for itself.
func (h *conn) flushHere() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.going == goAwayFirst && time.Since(h.goAwayAt) >= goAwayWait {
		h.goAwayFinalLocked() // it may never be silent
	}
	h.flushLocked(false)
	for h.queued > 2*h.limit() && h.flushing && h.err == nil {
		h.flushed.Wait()
	}
}

// discardLocked gives back what will not be written.
func (q *queue) discardLocked() {
	if q.flushing {
		return // it is in use by who writes
	}
	for _, b := range q.pending {
		q.h.c.Buffers.Put(b)
	}
	q.pending, q.queued = nil, 0
}
