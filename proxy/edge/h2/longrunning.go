package h2

import (
	"errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// start sends the head of a long-running response and starts its stream.
func (st *stream) start(resp *api.Response) {
	h := st.h
	status, header := resp.Status, resp.Header
	duplex, isDuplex := resp.Stream.(api.Duplex)
	if isDuplex {
		status, header = 200, agreement(header)
	}
	err := st.sendHead(status, header, -1, st.isHead)
	if err != nil || st.isHead {
		h.c.StopStream(resp.Stream)
		st.finish(resp, 0, err)
		return
	}
	if st.body != nil && !isDuplex {
		st.dropBody()
	}
	if !edge.WantsClose(resp.Header) {
		resp.Header = nil // it was sent, and the response may last for long
	}
	h.mu.Lock()
	st.duplex, st.long = isDuplex, true
	if !st.readsHere() {
		h.flushLocked(false)
	}
	st.turn = 0 // others write, too, from now on
	h.mu.Unlock()
	if err := h.c.StartStream(resp, st); err != nil {
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
		h.stopSoonLocked(st)
	}
	h.mu.Unlock()
}

// dropBody lets go of a body that is not read any more.
func (st *stream) dropBody() {
	unread := st.body.seal()
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if !st.gotEnd {
		st.received += unread
	}
	st.h.giveBackLocked(unread)
}

// stopSoonLocked has a goroutine end a long-running response.
func (h *conn) stopSoonLocked(st *stream) {
	if st.resp == nil || st.stopping {
		return
	}
	st.stopping = true
	h.c.Panics.Go(nil, "stream", st.stop)
}

// stop ends a long-running response.
func (st *stream) stop() {
	h, resp := st.h, st.resp
	if st.duplex {
		st.dropBody() // before the stream is stopped, which gets nothing then
	}
	h.c.StopStream(resp.Stream)
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
func (st *stream) WriteFrames(frames [][]byte) error {
	s := pieces{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	size := s.left
	if err := st.writable(); err != nil || size == 0 {
		return err
	}
	c := st.h.c
	if c.OverShare() && !c.Out.TakesMore() {
		c.Metrics.SlowWatches.Inc()
		st.h.fail(edge.ErrSlow)
		return edge.ErrSlow
	}
	err := st.send(&s, false, true)
	st.h.mu.Lock()
	st.written += int64(size - s.left)
	if err != nil {
		st.broken = true
		st.h.stopSoonLocked(st)
	}
	st.h.mu.Unlock()
	return err
}

// QueueFrames implements api.SharedWriter.
func (st *stream) QueueFrames(frames [][]byte) (taken bool) {
	s := pieces{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing || st.unsendableLocked() != nil || len(h.line) > 0 || h.c.OverShare() ||
		h.sendableLocked(st, s.left) < s.left {
		return false
	}
	st.written += int64(s.left)
	h.queueDataLocked(st, &s, s.left, false)
	return true
}

// Flush implements api.SharedWriter.
func (st *stream) Flush() { st.flush() }

// writable is why no frames are taken any more.
func (st *stream) writable() error {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing {
		return edge.ErrStreamOver
	}
	return st.unsendableLocked()
}

// Close implements api.StreamWriter.
func (st *stream) Close() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	st.closing = true
	h.stopSoonLocked(st)
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
	h.stopSoonLocked(st)
}
