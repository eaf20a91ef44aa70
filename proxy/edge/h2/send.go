package h2

import (
	"errors"
	"os"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

var errTooManyWaiting = errors.New("the user has more answers wait than a share of the memory for that")

// send queues s as the client accepts it. It waits at most the write timeout for each half MiB, or
// for an Upgrade until its own deadline. With end, it ends the stream; with flush, it writes at
// once.
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
		// Small responses do not wait in line. But a stream that is in line waits for its round.
		if h.firstLocked(st) || s.left <= quantum && !st.inLine {
			n := h.sendableLocked(st, s.left)
			if h.queueDataLocked(st, s, n, end) {
				h.sentEndLocked(st)
			}
			if n > 0 || s.left == 0 || st.window <= 0 {
				h.leaveLineLocked(st)
			}
			h.wakeNextLocked()
		}
		if s.left == 0 && (!end || st.sentEnd) {
			break
		}
		if len(h.pending) > 0 && !h.flusher.flushing {
			if h.aloneLocked(st) {
				h.flushLocked(true)
				continue
			}
			h.flushSoonLocked()
		}
		// Waiting for other streams' rounds is not the client's fault.
		sent, acknowledged := h.delivery.sent, h.delivery.acknowledged()
		rounds := st.window > 0 && sent-moved >= edge.WriteSlice
		switch {
		case st.upgraded:
			deadline = st.deadline
		case deadline.IsZero() || s.left <= slice || rounds || acknowledged-got >= edge.WriteSlice:
			deadline, slice = time.Now().Add(h.Options.WriteTimeout), s.left-edge.WriteSlice
			moved, got = sent, acknowledged
		}
		inTime, mayWait := st.waitAccountedLocked(deadline)
		switch {
		case !mayWait:
			h.Metrics.UnreadStreams.Inc()
			h.resetLocked(st, http2.ErrCodeEnhanceYourCalm, errTooManyWaiting)
			return st.giveUpLocked(errTooManyWaiting)
		case inTime:
		case st.upgraded:
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		case (st.window <= 0 || h.delivery.sent-moved < edge.WriteSlice) && h.delivery.acknowledged()-got < edge.WriteSlice:
			h.resetLocked(st, st.resetCode(), os.ErrDeadlineExceeded)
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		}
	}
	if flush {
		h.flushLocked(false)
	}
	return nil
}

// sendBytes queues p, or as much of it as the client accepts.
func (st *stream) sendBytes(p []byte, end, flush bool) (int, error) {
	one := [1][]byte{p}
	s := pieces{list: one[:], left: len(p)}
	err := st.send(&s, end, flush)
	return len(p) - s.left, err
}

// giveUpLocked releases the stream's queue space and its round.
func (st *stream) giveUpLocked(err error) error {
	st.h.leaveLineLocked(st)
	st.h.wakeNextLocked()
	st.h.flushSoonLocked()
	return err
}

// waitAccountedLocked is waitLocked for a response that has an end. The response counts as waiting,
// for a window or for the client to read, because each connection may have as many of them as
// streams.
func (st *stream) waitAccountedLocked(deadline time.Time) (inTime, mayWait bool) {
	if st.upgraded || st.long {
		return st.waitLocked(deadline), true
	}
	buffers, a, n := &st.h.Buffers, st.account, int64(edge.WaitingStream)
	if a == nil {
		a = st.h.Account()
	}
	if st.headerSize > edge.SmallHead {
		n += int64(st.headerSize)
	}
	if !buffers.AddWaiting(a, n) {
		return false, false
	}
	defer buffers.RemoveWaiting(a, n)
	return st.waitLocked(deadline), true
}

// waitLocked waits until a window and room may be available, or until the stream ends. It returns
// false after the deadline, if there is one. The stream stays in line.
func (st *stream) waitLocked(deadline time.Time) bool {
	h := st.h
	st.yield()
	if st.wake == nil {
		st.wake = make(chan struct{}, 1)
	}
	h.lineUpLocked(st)
	h.mu.Unlock()
	defer h.mu.Lock()
	return await(st.wake, deadline)
}

// sendHead queues the header of the response. With end, it ends the stream.
func (st *stream) sendHead(head responseHead, end bool) error {
	h := st.h
	buf := h.Buffer(edge.SmallBuffer)
	defer h.Buffers.Put(buf)
	buf.B = appendHeader(h.Conn, buf.B, head, st.isHead)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := st.unsendableLocked(); err != nil {
		return err
	}
	h.appendHeaders(st.id, buf.B, end)
	st.responded = true
	if end {
		h.sentEndLocked(st)
	}
	return nil
}

// continue100 tells the client to send its body, unless it got a response already.
func (st *stream) continue100() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.responded || st.unsendableLocked() != nil {
		return
	}
	h.appendHeaders(st.id, appendStatus(nil, 100), false)
	h.flushLocked(false)
}
