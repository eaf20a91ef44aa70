package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// stream2 is one request over HTTP/2 with its stream and its response: one allocation,
// which the handler may keep. A long-running response has no goroutine: whoever has
// frames writes them.
type stream2 struct {
	h   *http2Conn
	id  uint32
	req api.Request
	ctx servedContext
	// body is what the client sends, nil if nothing.
	body *http2Body
	// account is whose the stream is, nil if the connection is theirs.
	account *account
	// size is that of the decoded header.
	size int
	// turn is the connection's while the goroutine that reads it serves this request.
	turn uint64

	isHead, expects bool
	// tunnel says that the request is an extended CONNECT (RFC 8441).
	tunnel bool
	// refused is the status of an answer that the handler is not asked for, 0 for none.
	refused int

	// resp is a response with a Stream, once that was started.
	resp *api.Response

	// What follows is guarded by h.mu.

	window, received int64
	// gotEnd and sentEnd say who has ended their side.
	gotEnd, sentEnd bool
	// answered is set when the header was queued, served when the handler needs nothing
	// of the connection any more.
	answered, served bool
	inLine           bool // see queue
	err              error
	wake             chan struct{}
	// closing is set by Close and Abort: nothing more is written. ending is set when a
	// goroutine ends a long-running response.
	closing, aborted, ending bool
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

	fields [inlineFields]api.HeaderField
}

func (st *stream2) init() {
	st.req.Header = st.fields[:0]
	st.ctx.base = st.h.c.base
}

// serve answers the request.
func (st *stream2) serve() {
	defer st.contain()
	c := st.h.c
	var resp *api.Response
	if st.refused != 0 {
		c.metrics.refusals.Count(refusalOf(st.refused))
		resp = &api.Response{
			Status: st.refused,
			Header: api.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}},
			Body:   fmt.Appendf(nil, "%d %s", st.refused, http.StatusText(st.refused)),
		}
	} else {
		resp = st.agreed(c.call(&st.ctx, &st.req))
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
func (st *stream2) readsHere() bool { return st.turn != 0 && st.h.turn.Load() == st.turn }

// contain resets the stream when the transport itself panics.
func (st *stream2) contain() {
	e := recover()
	if e == nil {
		return
	}
	st.h.c.panics.Recovered("connection", e)
	st.finish(&api.Response{}, 0, errPanicked)
}

// finish ends everything that belongs to the request.
func (st *stream2) finish(resp *api.Response, written int64, err error) {
	h := st.h
	unread := int64(0)
	if st.body != nil {
		unread = st.body.seal()
	}
	h.c.buffers.accounts.release(st.account)
	st.account = nil
	st.ctx.end()
	h.mu.Lock()
	switch {
	case h.err != nil || h.streams[st.id] != st: // it is over already
	case !st.sentEnd:
		h.resetLocked(st, st.resetCode(), errStreamOver)
	case !st.gotEnd:
		st.late = time.AfterFunc(resetLate, st.stopUpload)
	}
	h.giveBackLocked(unread)
	if err == nil && st.err == nil && st.sentEnd {
		h.earned += effortAnswer
	}
	h.servedLocked(st)
	if err == nil {
		err = h.err
	}
	h.mu.Unlock()
	// Before the end of the answer leaves: who has it finds the request counted.
	h.c.done(resp, written, err)
	if wantsClose(resp.Header) {
		h.shutdown()
	}
	if !st.readsHere() {
		st.flush()
	}
	h.drop()
}

// stopUpload tells the client that it need not send the rest of a body that nobody
// reads.
func (st *stream2) stopUpload() {
	h := st.h
	defer h.c.panics.Contain("stream")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[st.id] == st && h.err == nil {
		h.resetLocked(st, http2.ErrCodeNo, errStreamOver)
		h.flushSoonLocked()
	}
}

// gotEndLocked notes that the client has ended its side.
func (h *http2Conn) gotEndLocked(st *stream2) {
	st.gotEnd = true
	if st.sentEnd {
		h.closeLocked(st)
	}
}

// resetLocked ends a stream and tells the client.
func (h *http2Conn) resetLocked(st *stream2, code http2.ErrCode, err error) {
	if h.streams[st.id] == st && h.err == nil {
		h.appendReset(st.id, code)
		if !st.gotEnd {
			h.cutOffLocked(st.id, st.received)
		}
	}
	h.endLocked(st, err)
}

// endLocked ends a stream.
func (h *http2Conn) endLocked(st *stream2, err error) {
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
}

// lost tells those who serve the stream that it is over. It does not block.
func (st *stream2) lost(err error) {
	h := st.h
	h.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
	h.endSoonLocked(st)
	h.mu.Unlock()
	st.ctx.end()
	if st.body != nil {
		if errors.Is(err, errClientLeft) {
			err = io.ErrUnexpectedEOF
		}
		st.body.end(err)
	}
}

// endedLocked notes that the response is complete.
func (st *stream2) endedLocked() {
	st.sentEnd = true
	st.h.servedLocked(st) // before the client learns of it and asks for more
	if st.gotEnd {
		st.h.closeLocked(st)
	}
}

// flush has what is queued leave, of all streams.
func (st *stream2) flush() {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	st.h.flushLocked(false)
}

// AttributeTo implements api.Attributor. What an HTTP/2 connection holds for all of its
// streams counts for who was the first to be known on it, what is unread on one of them for
// whose that is.
func (st *stream2) AttributeTo(user string) {
	a, owned := st.h.c.claim(user)
	if owned {
		st.account = a
	}
	if st.body != nil {
		st.body.attributeTo(a)
	}
}
