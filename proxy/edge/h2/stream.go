package h2

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// stream is one request over HTTP/2 with its stream and its response: one allocation,
// which the handler may keep. A long-running response has no goroutine: whoever has
// frames writes them.
type stream struct {
	h   *conn
	id  uint32
	req api.Request
	ctx requestContext
	// body is what the client sends, nil if nothing.
	body *body
	// account is whose the stream is, nil if the connection is theirs.
	account *edge.Account
	// headerSize is that of the decoded header.
	headerSize int
	// turn is the connection's while the goroutine that reads it serves this request.
	turn uint64

	isHead, expects bool
	// tunnel says that the request is an extended CONNECT (RFC 8441).
	tunnel bool
	// rejected is the status of an answer that the handler is not asked for, 0 for none.
	rejected int

	// resp is a response with a Stream, once that was started.
	resp *api.Response

	// What follows is guarded by h.mu.

	window, received int64
	// gotEnd and sentEnd say who has ended their side.
	gotEnd, sentEnd bool
	// responded is set when the header was queued, served when the handler needs nothing
	// of the connection any more.
	responded, served bool
	inLine            bool // see queue
	err               error
	wake              chan struct{}
	// closing is set by Close and Abort: nothing more is written. ending is set when a
	// goroutine ends a long-running response.
	closing, aborted, stopping bool
	// broken is set when frames could not be written, of which written bytes were.
	broken  bool
	written int64
	// duplex is set when the response is one, upgraded when it is an Upgrade, whose writes
	// wait until deadline.
	// long is set before the first frame of a Stream is written: it is not an answer that waits.
	duplex, upgraded, long bool
	deadline               time.Time
	// late resets the stream when the response is complete and the request is not.
	late *time.Timer

	fields [edge.InlineFields]api.HeaderField
}

func (st *stream) init() {
	st.req.Header = st.fields[:0]
	st.ctx.Base = st.h.c.Base
}

// serve answers the request.
func (st *stream) serve() {
	defer st.contain()
	c := st.h.c
	var resp *api.Response
	if st.rejected != 0 {
		c.Metrics.Rejections.Count(edge.ReasonFor(st.rejected))
		resp = &api.Response{
			Status: st.rejected,
			Header: api.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}},
			Body:   fmt.Appendf(nil, "%d %s", st.rejected, http.StatusText(st.rejected)),
		}
	} else {
		resp = st.agreed(c.Call(&st.ctx, &st.req))
	}
	switch {
	case resp.Upgrade != nil:
		st.upgrade(resp)
		return
	case resp.Stream != nil:
		st.start(resp)
		return
	}
	written, err := st.respond(resp)
	st.finish(resp, written, err)
}

// readsHere says whether the goroutine that serves the stream reads the connection when
// it has done that, and sends what is queued then.
func (st *stream) readsHere() bool { return st.turn != 0 && st.h.turn.Load() == st.turn }

// contain resets the stream when the transport itself panics.
func (st *stream) contain() {
	e := recover()
	if e == nil {
		return
	}
	st.h.c.Panics.Recovered("connection", e)
	st.finish(&api.Response{}, 0, edge.ErrPanicked)
}

// finish ends everything that belongs to the request.
func (st *stream) finish(resp *api.Response, written int64, err error) {
	h := st.h
	unread := int64(0)
	if st.body != nil {
		unread = st.body.seal()
	}
	h.c.Buffers.Accounts.Release(st.account)
	st.account = nil
	st.ctx.Cancel()
	h.mu.Lock()
	switch {
	case h.err != nil || h.streams[st.id] != st: // it is over already
	case !st.sentEnd:
		h.resetLocked(st, st.resetCode(), edge.ErrStreamOver)
	case !st.gotEnd:
		st.late = time.AfterFunc(lateReset, st.stopUpload)
	}
	h.giveBackLocked(unread)
	if err == nil && st.err == nil && st.sentEnd {
		h.earned += responseCredit
	}
	h.servedLocked(st)
	if err == nil {
		err = h.err
	}
	h.mu.Unlock()
	// Before the end of the answer leaves: who has it finds the request counted.
	h.c.Done(resp, written, err)
	if edge.WantsClose(resp.Header) {
		h.shutdown()
	}
	if !st.readsHere() {
		st.flush()
	}
	h.release()
}

// stopUpload tells the client that it need not send the rest of a body that nobody
// reads.
func (st *stream) stopUpload() {
	h := st.h
	defer h.c.Panics.Contain("stream")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[st.id] == st && h.err == nil {
		h.resetLocked(st, http2.ErrCodeNo, edge.ErrStreamOver)
		h.flushSoonLocked()
	}
}

// gotEndLocked notes that the client has ended its side.
func (h *conn) gotEndLocked(st *stream) {
	st.gotEnd = true
	if st.sentEnd {
		h.closeLocked(st)
	}
}

// resetLocked ends a stream and tells the client.
func (h *conn) resetLocked(st *stream, code http2.ErrCode, err error) {
	if h.streams[st.id] == st && h.err == nil {
		h.appendReset(st.id, code)
		if !st.gotEnd {
			h.addResetLocked(st.id, st.received)
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

// abandon tells those who serve the stream that it is over. It does not block.
func (st *stream) abandon(err error) {
	h := st.h
	h.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
	h.stopSoonLocked(st)
	h.mu.Unlock()
	st.ctx.Cancel()
	if st.body != nil {
		if errors.Is(err, errClientLeft) {
			err = io.ErrUnexpectedEOF
		}
		st.body.end(err)
	}
}

// endedLocked notes that the response is complete.
func (st *stream) endedLocked() {
	st.sentEnd = true
	st.h.servedLocked(st) // before the client learns of it and asks for more
	if st.gotEnd {
		st.h.closeLocked(st)
	}
}

// flush has what is queued leave, of all streams.
func (st *stream) flush() {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	st.h.flushLocked(false)
}

// AttributeTo implements api.Attributor. What an HTTP/2 connection holds for all of its
// streams counts for who was the first to be known on it, what is unread on one of them for
// whose that is.
func (st *stream) AttributeTo(user string) {
	a, owned := st.h.c.Claim(user)
	if owned {
		st.account = a
	}
	if st.body != nil {
		st.body.attributeTo(a)
	}
}
