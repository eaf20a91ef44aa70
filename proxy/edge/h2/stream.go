package h2

import (
	"errors"
	"io"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// lateReset is how long after a response the client is told that the rest of its request body is
// not needed. A client may lose a response that arrives together with a reset: curl 7.88 does.
const lateReset = 250 * time.Millisecond

// stream is one request with its stream and its response, in one allocation, which the handler may
// keep. A long-running response has no goroutine: the caller of WriteFrames writes.
type stream struct {
	h  *conn
	id uint32
	// turn is the connection's turn while the reading goroutine serves this request.
	turn uint64
	incoming

	// The fields below are guarded by h.mu.

	sending
	longRunning
	// gotEnd and sentEnd are set when the client and the server have ended their side.
	gotEnd, sentEnd bool
	// responded is set when the header was queued, served when the handler no longer uses the
	// connection.
	responded, served bool
	err               error // why the stream is over
	// late resets the stream if the response is complete and the request is not.
	late *time.Timer
}

// incoming is the request of a stream.
type incoming struct {
	req api.Request
	ctx requestContext
	// body is the request body, nil if there is none.
	body *body
	// account is the user's account, nil if the connection is charged.
	account *edge.Account
	// headerSize is the size of the decoded header.
	headerSize int

	isHead, expects bool
	// tunnel is true if the request is an extended CONNECT (RFC 8441).
	tunnel bool
	// rejected is the status of a response that the transport creates instead of the handler, 0 for
	// none.
	rejected int

	fields [edge.InlineFields]api.HeaderField
}

// sending is the state of sending a stream's response.
type sending struct {
	// window is how many bytes the client accepts, received how many it may still send.
	window, received int64
	inLine           bool // see queue
	wake             chan struct{}
	// upgraded is set when the response is an Upgrade, whose writes wait until deadline.
	upgraded bool
	deadline time.Time
}

// longRunning is a response with a Stream.
type longRunning struct {
	resp *api.Response // once the Stream was started
	// long is set before its first frame is written: a long-running response does not count as
	// waiting.
	long, duplex bool
	// closing is set by Close and Abort: nothing more is written. stopping is set when a
	// goroutine stops the Stream.
	closing, aborted, stopping bool
	// broken is set when frames could not be written completely; written is how many bytes were.
	broken  bool
	written int64
}

func newStream(h *conn, id uint32) *stream {
	st := &stream{h: h, id: id}
	st.req.Header, st.ctx.Base = st.fields[:0], h.Base
	return st
}

// requestContext is the context of a request. Calling Done hands the reading of the connection to
// another goroutine, because the caller is going to wait.
type requestContext struct {
	edge.Context
	// reads is the connection that this goroutine will continue to read after serving the request
	// in turn; nil for none.
	reads *conn
	turn  uint64
}

func (r *requestContext) Done() <-chan struct{} {
	done, first := r.Start()
	if first && r.reads != nil {
		r.reads.takeOver(r.turn)
	}
	return done
}

// AttributeTo implements api.Attributor. The memory that a connection holds for all of its streams
// counts for the first user known on it. Unread data of a stream counts for the user of that
// stream.
func (st *stream) AttributeTo(user string) {
	a, owned := st.h.Claim(user)
	if owned {
		st.account = a
	}
	if st.body != nil {
		st.body.attributeTo(a)
	}
}

// readsHere reports whether the goroutine that serves the stream will continue to read the
// connection, and write the queue, after that.
func (st *stream) readsHere() bool { return st.turn != 0 && st.h.lease.turn.Load() == st.turn }

// yield lets another goroutine read the connection if this one, which serves st, does.
func (st *stream) yield() {
	if st.readsHere() {
		st.h.takeOver(st.turn)
	}
	st.turn = 0
}

// unsendableLocked returns why nothing more can be sent on the stream, or nil.
func (st *stream) unsendableLocked() error {
	switch {
	case st.h.err != nil:
		return st.h.err
	case st.h.ending != nil:
		return st.h.ending
	case st.err != nil:
		return st.err
	case st.sentEnd:
		return edge.ErrStreamOver
	}
	return nil
}

// wakeLocked wakes the goroutine that waits in waitLocked.
func (st *stream) wakeLocked() {
	if st.wake != nil {
		signal(st.wake)
	}
}

// signal puts a value into a channel with capacity one, if it is empty.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// await waits for a signal until the deadline, forever if that is zero. It returns false when the
// deadline has passed.
func await(ch <-chan struct{}, deadline time.Time) bool {
	if deadline.IsZero() {
		<-ch
		return true
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

// resetCode returns the error code for a stream that ends before its response is complete. In a
// tunnel it is the equivalent of a TCP reset (RFC 8441, 5).
func (st *stream) resetCode() http2.ErrCode {
	if st.tunnel {
		return http2.ErrCodeCancel
	}
	return http2.ErrCodeInternal
}

// abandon notifies those who serve the stream that it has ended. It does not block.
func (st *stream) abandon(err error) {
	h := st.h
	h.mu.Lock()
	h.endLocked(st, err)
	h.endSoonLocked(st)
	h.mu.Unlock()
	st.ctx.Cancel()
	if st.body != nil {
		if errors.Is(err, errClientLeft) {
			err = io.ErrUnexpectedEOF
		}
		st.body.end(err)
	}
}

// finish releases everything that belongs to the request.
func (st *stream) finish(resp *api.Response, written int64, err error) {
	h := st.h
	unread := int64(0)
	if st.body != nil {
		unread = st.body.seal()
	}
	h.ReleaseAccount(st.account)
	st.account = nil
	st.ctx.Cancel()
	h.mu.Lock()
	switch {
	case !h.isOpenLocked(st): // it is over already
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
	// This precedes the end of the response, so that a client that has received it finds the
	// request counted.
	h.Done(resp, written, err)
	if edge.WantsClose(resp.Header) {
		h.shutdown()
	}
	if !st.readsHere() {
		h.flush()
	}
	h.release()
}

// stopUpload asks the client to stop sending the rest of a body that will not be read.
func (st *stream) stopUpload() {
	h := st.h
	defer h.Panics.Contain("stream")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOpenLocked(st) {
		h.resetLocked(st, http2.ErrCodeNo, edge.ErrStreamOver)
		h.flushSoonLocked()
	}
}
