package h2

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// conn is an HTTP/2 connection (RFC 9113).
//
// One goroutine at a time reads it. It serves a request without a body itself, as most
// are answered at once. Before it waits for the client, or when serving takes longer
// than takeOverAfter, another goroutine goes on reading and it becomes the request's own:
//
//	read --> request --> serve --> read on
//	                       |
//	                       +--> waits: a fresh goroutine reads on
//
// What is to be sent is queued as frames and written by whoever finds nobody writing,
// so that frames of many streams leave together: see flushLocked. Only the goroutine
// that reads touches reader.
type conn struct {
	*edge.Conn
	reader
	lease lease
	// users are the goroutine that reads and the requests; the last one ends the
	// connection.
	users atomic.Int32

	mu sync.Mutex
	// What follows is guarded by mu.

	queue
	flusher flusher
	streamSet
	receiveWindow
	wait   waitState
	goAway goAway
	err    error // why the connection is over
	ending error // why it will be when what is queued was sent
}

// reader is what the goroutine that reads knows.
type reader struct {
	framer  *http2.Framer
	decoder *hpack.Decoder
	head    headers
	// large says that the framer has a buffer for large frames.
	large bool
	// maxID is the highest stream that the client has begun, opened tells which of the
	// 64 up to it were: bit 0 is maxID.
	maxID  uint32
	opened uint64
	// credit is what the client may still have the server do for nothing, creditSince when it was
	// last given for time: see charge.
	credit      int
	creditSince time.Time
	// slow counts the requests down that are not served by the goroutine that reads.
	slow int
	// pinged is when a client that is silent was sent a PING.
	pinged time.Time
}

// lease says which goroutine reads a connection: turn is odd while that serves a request; whoever
// increments it then reads on.
type lease struct {
	turn atomic.Uint64
	// timer checks the lease while watched is set; seen is the turn that it saw last, calm how
	// many checks in a row found nothing slow, mostCalm at most.
	timer   *time.Timer
	watched atomic.Bool
	seen    atomic.Uint64
	calm    atomic.Int32
	// read goes on reading.
	read func(turn uint64)
}

// streamSet are the streams of a connection.
type streamSet struct {
	streams map[uint32]*stream
	resets  resetStreams
	serving int // requests without a complete response, those of reset streams included
	// idle is since when there are no streams, idleGot what the client had of responses then.
	idle    time.Time
	idleGot int64
}

// receiveWindow is the window of a connection for what the client sends.
type receiveWindow struct {
	// received is how much the client may still send, consumed what it may send again
	// but has not been told of.
	received, consumed int64
}

// waitState is how the goroutine that reads waits for the client: waiting while it does,
// interrupted when somebody has made it stop.
type waitState struct{ waiting, interrupted bool }

// goAway is how far the end of a connection is.
type goAway struct {
	state  goAwayState
	at     time.Time // of the first GOAWAY
	lastID uint32    // the last stream that is served, once that was told
}

type goAwayState uint8

const (
	goAwayNone  goAwayState = iota
	goAwayFirst             // sent with the highest stream there may be, as more may be on their way
	goAwayFinal             // sent with the last stream that is served
)

// goAwayPing is the PING that follows the first GOAWAY: its acknowledgement tells that
// the client has seen that.
var goAwayPing = [8]byte{'g', 'o', ' ', 'a', 'w', 'a', 'y'} //nolint:gochecknoglobals // a constant

var (
	errClientLeft = errors.New("the client has left")
	errProtocol   = errors.New("the client breaks the rules of HTTP/2")
	errGoneAway   = errors.New("the connection was told to go away, and has no requests")
)

// resetStreams are the streams that were reset here last. What the client had sent before it knew
// is dropped. It does not know of MaxStreams at most, as it could not have begun the next.
type resetStreams struct {
	list  []resetStream
	count int
}

// resetStream is a stream that was reset here, a moment ago.
type resetStream struct {
	id   uint32
	left int64 // of the window that the client had
}

// add notes a stream with the window that it had, in place of the oldest if there are most.
func (r *resetStreams) add(id uint32, left int64, most int) {
	if len(r.list) < most {
		r.list = append(r.list, resetStream{id, left})
	} else {
		r.list[r.count%most] = resetStream{id, left}
	}
	r.count++
}

// find returns a stream that was reset here, nil for others.
func (r *resetStreams) find(id uint32) *resetStream {
	for i := range r.list {
		if r.list[i].id == id {
			return &r.list[i]
		}
	}
	return nil
}

// take says what DATA of n bytes costs that comes late: nothing, or that of a small frame,
// for what the client may have sent before it knew of the reset. That is no more than its
// window, and nothing behind its end.
func (r *resetStream) take(n int64, end bool) (cost int) {
	if r.left -= n; r.left < 0 {
		return resetCost
	}
	if end {
		r.left = 0
	}
	if n < updateBytes {
		return frameCost
	}
	return 0
}

// shutdown lets the client finish what it has begun, and what it begins before it
// knows.
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

// servedLocked is called when a response is complete or abandoned, whatever became of
// its stream.
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

// takeOver starts a goroutine that reads, if the one that serves in this turn still
// would.
func (h *conn) takeOver(turn uint64) (done bool) {
	if !h.lease.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	h.Panics.Go(nil, "connection", func() { h.lease.read(turn + 1) })
	return true
}
