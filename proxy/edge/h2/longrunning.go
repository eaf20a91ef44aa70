package h2

import (
	"errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// start sends the header of a long-running response and starts its stream.
func (st *stream) start(resp *api.Response) {
	h := st.h
	head := responseHead{resp.Status, resp.Header, -1}
	duplex, isDuplex := resp.Stream.(api.Duplex)
	if isDuplex {
		head.status = 200
	}
	err := st.sendHead(head, st.isHead)
	if err != nil || st.isHead {
		h.StopStream(resp.Stream)
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
	if err := h.StartStream(resp, st); err != nil {
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

// dropBody abandons a body that will not be read any more.
func (st *stream) dropBody() {
	unread := st.body.seal()
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if !st.gotEnd {
		st.received += unread
	}
	st.h.giveBackLocked(unread)
}

// stop ends a long-running response.
func (st *stream) stop() {
	h, resp := st.h, st.resp
	if st.duplex {
		st.dropBody() // before the stream is stopped, which gets nothing then
	}
	h.StopStream(resp.Stream)
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

// WriteFrames implements api.StreamWriter. It puts all frames into one DATA frame, or into several
// if they are too large.
func (st *stream) WriteFrames(frames [][]byte) error {
	h, s := st.h, newPieces(frames)
	size := s.left
	if err := st.writable(); err != nil || size == 0 {
		return err
	}
	if h.OverShare() && !h.Out.TakesMore() {
		h.Metrics.SlowWatches.Inc()
		h.fail(edge.ErrSlow)
		return edge.ErrSlow
	}
	err := st.send(&s, false, true)
	h.mu.Lock()
	defer h.mu.Unlock()
	st.written += int64(size - s.left)
	if err != nil {
		st.broken = true
		h.endSoonLocked(st)
	}
	return err
}

func (st *stream) QueueFrames(frames [][]byte) (taken bool) {
	h, s := st.h, newPieces(frames)
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing || st.unsendableLocked() != nil || len(h.line) > 0 || h.OverShare() ||
		h.sendableLocked(st, s.left) < s.left {
		return false
	}
	st.written += int64(s.left)
	h.queueDataLocked(st, &s, s.left, false)
	return true
}

func (st *stream) Flush() { st.h.flush() }

// writable returns why no more frames are accepted, or nil.
func (st *stream) writable() error {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if st.closing {
		return edge.ErrStreamOver
	}
	return st.unsendableLocked()
}

func (st *stream) Close() {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	st.closing = true
	st.h.endSoonLocked(st)
}
