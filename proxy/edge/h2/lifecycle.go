package h2

import (
	"errors"
	"io"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// charge deducts n from the client's credit. Only the reading goroutine may call it.
func (h *conn) charge(n int) error {
	if h.credit -= n; h.credit >= 0 {
		return nil
	}
	now := time.Now()
	passed := min(now.Sub(h.creditSince), time.Minute)
	h.creditSince = now
	h.mu.Lock()
	earned := min(h.earned, maxCredit)
	h.earned = 0
	h.mu.Unlock()
	h.credit = min(h.credit+int(passed.Seconds()*creditPerSecond)+earned, maxCredit)
	if h.credit < 0 {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// shutdown lets the client finish the requests that it has begun, including those that it begins
// before it receives the GOAWAY.
func (h *conn) shutdown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.goAway.state != goAwayNone || h.err != nil {
		return
	}
	h.goAway.state, h.goAway.at = goAwayFirst, time.Now()
	h.appendGoAway(maxWindow, http2.ErrCodeNo)
	h.appendPing(false, goAwayPing)
	h.flushSoonLocked()
	h.wakeReaderLocked()
}

// wakeReaderLocked interrupts the reading goroutine, so that it checks again what to wait for.
func (h *conn) wakeReaderLocked() {
	if h.wait.waiting && !h.wait.interrupted {
		h.wait.interrupted = true
		h.In.Interrupt()
	}
}

// fail ends everything on the connection. Only the first error counts.
func (h *conn) fail(err error) {
	h.mu.Lock()
	first := h.err == nil
	if first {
		h.err = err
		h.wakeReaderLocked()
	}
	streams := make([]*stream, 0, len(h.streams))
	for _, st := range h.streams {
		streams = append(streams, st)
	}
	var ce http2.ConnectionError
	if first && !errors.Is(err, errGoneAway) && !errors.As(err, &ce) {
		h.Abort()
	}
	h.discardLocked()
	h.mu.Unlock()
	for _, st := range streams {
		st.abandon(err)
	}
}

// release must be the last call of every user of the connection.
func (h *conn) release() {
	if h.users.Add(-1) == 0 {
		h.holdBlock(0)
		h.mu.Lock()
		h.discardLocked()
		h.mu.Unlock()
		h.End()
	}
}

// open registers a stream, or returns the code with which it is rejected.
func (h *conn) open(st *stream) (http2.ErrCode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := int(h.Options.MaxStreams)
	// Requests of streams that were reset count until their handlers return.
	if len(h.streams) >= most || h.serving >= most {
		return http2.ErrCodeRefusedStream, false
	}
	if h.streams == nil {
		h.streams = make(map[uint32]*stream)
	}
	h.streams[st.id] = st
	h.serving++
	h.users.Add(1)
	st.window, st.received = h.initial, uploadBuffer
	return 0, true
}

// closeLocked removes a stream.
func (h *conn) closeLocked(st *stream) {
	if h.streams[st.id] != st {
		return
	}
	delete(h.streams, st.id)
	if st.late != nil {
		st.late.Stop()
	}
	if len(h.streams) == 0 {
		h.idle, h.idleGot = time.Now(), h.delivery.acknowledged()
		if h.goAway.state == goAwayFinal {
			h.wakeReaderLocked()
		}
	}
}

// isOpenLocked reports whether a stream is open on a connection that has not ended.
func (h *conn) isOpenLocked(st *stream) bool { return h.streams[st.id] == st && h.err == nil }

// servedLocked is called when a response is complete or abandoned, whatever happened to its stream.
func (h *conn) servedLocked(st *stream) {
	if !st.served {
		st.served = true
		h.serving--
	}
}

// gotEndLocked records that the client has ended its side.
func (h *conn) gotEndLocked(st *stream) {
	st.gotEnd = true
	if st.sentEnd {
		h.closeLocked(st)
	}
}

// sentEndLocked records that the response is complete.
func (h *conn) sentEndLocked(st *stream) {
	st.sentEnd = true
	h.servedLocked(st) // before the client learns of it and asks for more
	if st.gotEnd {
		h.closeLocked(st)
	}
}

// resetLocked ends a stream and sends RST_STREAM.
func (h *conn) resetLocked(st *stream, code http2.ErrCode, err error) {
	if h.isOpenLocked(st) {
		h.appendReset(st.id, code)
		if !st.gotEnd {
			h.resets.add(st.id, st.received, int(h.Options.MaxStreams))
		}
	}
	h.endLocked(st, err)
}

// endLocked ends a stream.
func (h *conn) endLocked(st *stream, err error) {
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
}

// endSoonLocked starts a goroutine that ends a long-running response.
func (h *conn) endSoonLocked(st *stream) {
	if st.resp == nil || st.stopping {
		return
	}
	st.stopping = true
	h.Panics.Go(nil, "stream", st.stop)
}

// giveBackLocked lets the client send n more bytes on the connection. It sends a WINDOW_UPDATE when
// enough has accumulated. If much memory is held already, it grants little at a time, so that
// uploads slow down.
func (h *conn) giveBackLocked(n int64) {
	h.consumed += n
	give, least := h.consumed, int64(uploadBuffers/4)
	if h.Buffers.UnderPressure() {
		give, least = min(give, edge.SmallBuffer-h.received), 1
		if h.received > edge.SmallBuffer/2 {
			return
		}
	}
	if give >= least && h.err == nil {
		h.received += give
		h.consumed -= give
		h.appendWindowUpdate(0, give)
	}
}

// takeOver starts a goroutine that reads, if the goroutine that serves in this turn has not
// returned to reading.
func (h *conn) takeOver(turn uint64) (done bool) {
	if !h.lease.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	h.Panics.Go(nil, "connection", func() { h.lease.read(turn + 1) })
	return true
}

// reject resets a stream, whether it is open or not.
func (h *conn) reject(id uint32, code http2.ErrCode) error {
	if err := h.charge(resetCost); err != nil {
		return err
	}
	h.mu.Lock()
	st := h.streams[id]
	if st == nil {
		if id > h.maxID {
			h.mu.Unlock()
			return http2.ConnectionError(code) // of a stream that is idle
		}
		left := int64(uploadBuffer)
		if code == http2.ErrCodeStreamClosed {
			left = 0 // the client has ended it
		}
		h.appendReset(id, code)
		h.resets.add(id, left, int(h.Options.MaxStreams))
		h.mu.Unlock()
		return nil
	}
	h.resetLocked(st, code, errProtocol)
	h.mu.Unlock()
	st.abandon(errProtocol)
	return nil
}

// gotData records that a DATA frame was read; lost bytes of its window were padding. A body whose
// length differs from the announced one is rejected, like any other fault of a client.
func (h *conn) gotData(st *stream, lost int64, end bool) error {
	b := st.body
	wrong := b.isWrongLength(end)
	h.mu.Lock()
	open := h.streams[st.id] == st
	if wrong && open {
		h.mu.Unlock()
		return h.reject(st.id, http2.ErrCodeProtocol)
	}
	switch {
	case !open:
	case end:
		h.gotEndLocked(st)
		if st.duplex {
			h.endSoonLocked(st) // the client is gone, as when it closes a connection
		}
	case lost > 0 && !st.sentEnd:
		st.received += lost
		h.appendWindowUpdate(st.id, lost)
	}
	h.mu.Unlock()
	switch {
	case wrong:
		b.end(errProtocol)
	case end:
		b.end(io.EOF)
	}
	return nil
}

var errAborted = errors.New("the stream was aborted")

// Abort implements api.StreamWriter: the client gets a RST_STREAM.
func (st *stream) Abort() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing {
		return
	}
	st.closing, st.aborted = true, true
	h.resetLocked(st, st.resetCode(), errAborted)
	h.flushSoonLocked()
	h.endSoonLocked(st)
}

// holdBlock counts n bytes as held for the header that is being read, instead of the previous
// number.
func (h *conn) holdBlock(n int) {
	b := &h.head.block
	if b.account == nil {
		b.account = h.Account()
	}
	h.Buffers.Hold(b.account, int64(n-b.held))
	b.held = n
}

// flushLocked makes sure that the queue is written: by the caller, unless another goroutine does so
// already. If the caller must not wait for the client, another goroutine writes the bytes that the
// client does not accept at once.
func (h *conn) flushLocked(wait bool) {
	if h.isFlushedLocked() {
		return
	}
	if wait || h.Out.CanWriteNow() {
		h.flushRoundLocked(wait)
	}
	h.flushSoonLocked() // what others have queued meanwhile
}

// flushSoonLocked makes sure that the queue is written by another goroutine.
func (h *conn) flushSoonLocked() {
	if !h.isFlushedLocked() {
		h.handOverLocked(0)
	}
}

// isFlushedLocked reports whether the queue is empty or being written.
func (h *conn) isFlushedLocked() bool {
	return h.flusher.flushing || len(h.pending) == 0 || h.err != nil
}

// flush writes the queued frames of all streams.
func (h *conn) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked(false)
}

// flushRoundLocked writes the queue without holding mu. No other goroutine writes. Without wait,
// bytes that the client does not accept at once are handed over to another goroutine.
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

// handOverLocked starts a goroutine that writes until the queue is empty, beginning with the rest
// bytes that the client has not accepted. The connection does not end before this goroutine, which
// waits for the client no longer than the write timeout.
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

// roundOverLocked lets other goroutines write.
func (h *conn) roundOverLocked() {
	h.flusher.flushing = false
	if h.err != nil {
		h.discardLocked()
	}
	h.wakeNextLocked()
	h.flusher.flushed.Broadcast()
}

// discardLocked releases buffers that will not be written.
func (h *conn) discardLocked() {
	if h.flusher.flushing {
		return // whoever writes uses it
	}
	for _, b := range h.pending {
		h.Buffers.Put(b)
	}
	h.pending, h.queued = nil, 0
}

// flushHere flushes before the reading goroutine waits. If more is queued than responses may use,
// it does not read on before the client has accepted some of it. Otherwise a client that sends much
// before it reads would wait for itself.
func (h *conn) flushHere() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.goAway.state == goAwayFirst && time.Since(h.goAway.at) >= goAwayWait {
		h.goAwayFinalLocked() // it may never be silent
	}
	h.flushLocked(false)
	for h.queued > 2*h.limit() && h.flusher.flushing && h.err == nil {
		h.flusher.flushed.Wait()
	}
}

// goAwayWait is how long after a GOAWAY new requests are still accepted, because the client may not
// have received it.
const goAwayWait = time.Second

// goAwayFinalLocked sends the GOAWAY that names the last stream. Only the reading goroutine may
// call it.
func (h *conn) goAwayFinalLocked() {
	if h.goAway.state != goAwayFinal {
		h.goAway.state, h.goAway.lastID = goAwayFinal, h.maxID
		h.appendGoAway(h.goAway.lastID, http2.ErrCodeNo)
	}
}
