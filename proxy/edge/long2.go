package edge

import (
	"errors"

	"github.com/kubeweir/kubeweir/api"
)

// start sends the head of a long-running response and starts its stream.
func (st *stream2) start(resp *api.Response) {
	h := st.h
	status, header := resp.Status, resp.Header
	duplex, isDuplex := resp.Stream.(api.Duplex)
	if isDuplex {
		status, header = 200, agreement2(header)
	}
	err := st.sendHead(status, header, -1, st.isHead)
	if err != nil || st.isHead {
		h.c.stopStream(resp.Stream)
		st.finish(resp, 0, err)
		return
	}
	if st.body != nil && !isDuplex {
		st.dropBody()
	}
	if !wantsClose(resp.Header) {
		resp.Header = nil // it was sent, and the response may last for long
	}
	h.mu.Lock()
	st.duplex, st.long = isDuplex, true
	if !st.readsHere() {
		h.flushLocked(false)
	}
	st.turn = 0 // others write, too, from now on
	h.mu.Unlock()
	if err := h.c.startStream(resp, st); err != nil {
		h.mu.Lock()
		h.resetLocked(st, st.resetCode(), err)
		h.flushSoonLocked()
		h.mu.Unlock()
	} else if isDuplex {
		st.body.passTo(duplex)
	}
	h.mu.Lock()
	st.resp = resp
	if st.closing || st.err != nil || h.err != nil || st.duplex && st.gotEnd {
		h.endSoonLocked(st)
	}
	h.mu.Unlock()
}

// dropBody lets go of a body that is not read any more.
func (st *stream2) dropBody() {
	unread := st.body.seal()
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if !st.gotEnd {
		st.received += unread
	}
	st.h.giveBackLocked(unread)
}

// endSoonLocked has a goroutine end a long-running response.
func (h *http2Conn) endSoonLocked(st *stream2) {
	if st.resp == nil || st.ending {
		return
	}
	st.ending = true
	h.c.panics.Go(nil, "stream", st.end)
}

// end ends a long-running response.
func (st *stream2) end() {
	h, resp := st.h, st.resp
	if st.duplex {
		st.dropBody() // before the stream is stopped, which gets nothing then
	}
	h.c.stopStream(resp.Stream)
	h.mu.Lock()
	err := st.err
	if err == nil && st.aborted {
		err = errAborted
	}
	written, broken := st.written, st.broken
	h.mu.Unlock()
	if err == nil {
		_, err = st.sendBytes(nil, true, true)
	}
	if errors.Is(err, errClientLeft) && !broken {
		err = nil // it is the client's to end a watch
	}
	st.finish(resp, written, err)
}

// WriteFrames implements api.StreamWriter: all frames in one DATA frame, or as
// many as their size takes.
func (st *stream2) WriteFrames(frames [][]byte) error {
	s := pieces2{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	size := s.left
	if err := st.writable(); err != nil || size == 0 {
		return err
	}
	c := st.h.c
	if c.short() && !c.out.writable() {
		c.metrics.slow.Inc()
		st.h.fail(errSlow)
		return errSlow
	}
	err := st.send(&s, false, true)
	st.h.mu.Lock()
	st.written += int64(size - s.left)
	if err != nil {
		st.broken = true
		st.h.endSoonLocked(st)
	}
	st.h.mu.Unlock()
	return err
}

// QueueFrames implements api.SharedWriter.
func (st *stream2) QueueFrames(frames [][]byte) (taken bool) {
	s := pieces2{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing || st.unsendableLocked() != nil || len(h.inLine) > 0 || h.c.short() ||
		h.sendableLocked(st, s.left) < s.left {
		return false
	}
	st.written += int64(s.left)
	h.queueDataLocked(st, &s, s.left, false)
	return true
}

// Flush implements api.SharedWriter.
func (st *stream2) Flush() { st.flush() }

// writable is why no frames are taken any more.
func (st *stream2) writable() error {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing {
		return errStreamOver
	}
	return st.unsendableLocked()
}

// Close implements api.StreamWriter.
func (st *stream2) Close() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	st.closing = true
	h.endSoonLocked(st)
}

var errAborted = errors.New("the stream was aborted")

// Abort implements api.StreamWriter: the client gets a RST_STREAM.
func (st *stream2) Abort() {
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
