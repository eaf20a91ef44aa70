package h2

import (
	"errors"
	"io"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// charge takes n of the client's credit. It is for the goroutine that reads.
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

// shutdown lets the client finish what it has begun, and what it begins before it knows.
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

// wakeReaderLocked has the goroutine that reads look again at what it waits for.
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

// release is called by the last act of every user of the connection.
func (h *conn) release() {
	if h.users.Add(-1) == 0 {
		h.holdBlock(0)
		h.mu.Lock()
		h.discardLocked()
		h.mu.Unlock()
		h.End()
	}
}

// open takes a stream in, or says with which code it is rejected.
func (h *conn) open(st *stream) (http2.ErrCode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := int(h.Options.MaxStreams)
	// Requests of streams that were reset count until they are over.
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

// closeLocked forgets a stream.
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

// isOpenLocked reports whether a stream is open on a connection that is not over.
func (h *conn) isOpenLocked(st *stream) bool { return h.streams[st.id] == st && h.err == nil }

// servedLocked is called when a response is complete or abandoned, whatever became of its stream.
func (h *conn) servedLocked(st *stream) {
	if !st.served {
		st.served = true
		h.serving--
	}
}

// gotEndLocked notes that the client has ended its side.
func (h *conn) gotEndLocked(st *stream) {
	st.gotEnd = true
	if st.sentEnd {
		h.closeLocked(st)
	}
}

// sentEndLocked notes that the response is complete.
func (h *conn) sentEndLocked(st *stream) {
	st.sentEnd = true
	h.servedLocked(st) // before the client learns of it and asks for more
	if st.gotEnd {
		h.closeLocked(st)
	}
}

// resetLocked ends a stream and tells the client.
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

// endSoonLocked has a goroutine end a long-running response.
func (h *conn) endSoonLocked(st *stream) {
	if st.resp == nil || st.stopping {
		return
	}
	st.stopping = true
	h.Panics.Go(nil, "stream", st.stop)
}

// giveBackLocked lets the client send n more bytes on the connection. It is told when
// that is worth a frame. Where much is held already it may send little at a time, for as
// long as that is so: then uploads are slow.
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

// takeOver starts a goroutine that reads, if the one that serves in this turn still would.
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

// gotData notes that a DATA frame was read: lost bytes of its window were no data. A body of
// another length than was announced is rejected, as any other fault of a client.
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

// holdBlock counts n bytes as held for the header that is being read, in place of those before.
func (h *conn) holdBlock(n int) {
	b := &h.head.block
	if b.account == nil {
		b.account = h.Account()
	}
	h.Buffers.Hold(b.account, int64(n-b.held))
	b.held = n
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

// flushHere is for the goroutine that reads, before it waits. It does not read on
// before the client has taken some of what is queued, if that is more than responses may
// take: a client that sends much before it reads must not wait for itself.
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

// goAwayWait is how long a client may take to learn of a GOAWAY before requests that it
// still begins are not taken any more.
const goAwayWait = time.Second

// goAwayFinalLocked tells the client which streams were the last. It is for the goroutine
// that reads.
func (h *conn) goAwayFinalLocked() {
	if h.goAway.state != goAwayFinal {
		h.goAway.state, h.goAway.lastID = goAwayFinal, h.maxID
		h.appendGoAway(h.goAway.lastID, http2.ErrCodeNo)
	}
}
