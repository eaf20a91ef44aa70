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

const (
	// uploadBuffer is how much of a request's body a client may send before it is
	// read, uploadBuffers the same for all requests of a connection.
	uploadBuffer  = 256 << 10
	uploadBuffers = 1 << 20
	// frameSize is the most that the payload of a frame may have: what every endpoint
	// accepts, and the least that may be announced.
	frameSize = 16 << 10
	// frameHead is the size of what is before the payload.
	frameHead = 9
	// headerTable is the size of HPACK's dynamic table of a client's headers.
	headerTable = 4096
	// framesAtOnce is how many frames are read before what they caused is sent.
	framesAtOnce = 64
	// largeFrame is from where on the buffer that held a frame is not kept.
	largeFrame = 256
	// initialWindow is that of a stream and of a connection before anyone says else.
	initialWindow = 1<<16 - 1
	// maxWindow is the most that a window may be.
	maxWindow = 1<<31 - 1

	// takeOverAfter is how long a request may keep its connection from being read, to twice
	// that, before another goroutine goes on reading. It is looked for less often where all
	// were quick: to 17 times that.
	takeOverAfter = 500 * time.Microsecond
	// mostCalm is how often the time between two looks at that is doubled, once for each
	// that finds nothing slow: on a busy connection each costs a thread's sleep.
	mostCalm = 4
	// slowRow is how many requests are served by goroutines of their own after one had
	// to be stepped in for.
	slowRow = 32
	// lateReset is how long after a response that needs no more of the request's body the
	// client is told so. A client may forget a response that comes together with a reset:
	// curl 7.88 does.
	lateReset = 250 * time.Millisecond
)

// conn is an HTTP/2 connection (RFC 9113).
//
// One goroutine at a time reads it. It serves a request without a body itself, as most
// are answered at once. Before it waits for the client, or when serving takes longer
// than stepIn, another goroutine goes on reading and it becomes the request's own:
//
//	read --> request --> serve --> read on
//	                       |
//	                       +--> waits: a fresh goroutine reads on
//
// What is to be sent is queued as frames and written by whoever finds nobody writing,
// so that frames of many streams leave together: see flush.go. Only the goroutine
// that reads touches what is not guarded by mu.
type conn struct {
	c *edge.Conn

	framer  *http2.Framer
	decoder *hpack.Decoder
	head    headers
	// maxID is the highest stream that the client has begun, opened tells which of the
	// 64 up to it were: bit 0 is maxID.
	maxID  uint32
	opened uint64
	effort effort
	// slow counts the requests down that are not served by who reads.
	slow int
	// pinged is when a client that is silent was asked whether it is there.
	pinged time.Time

	// turn is odd while the goroutine that reads serves a request; whoever increments it
	// then reads on. watched says that stepper looks after it.
	turn       atomic.Uint64
	watched    atomic.Bool
	leaseTimer *time.Timer
	seen       atomic.Uint64 // the turn that stepper saw last
	calm       atomic.Int32  // how many looks have found nothing slow, mostCalm at most
	doubted    atomic.Bool   // the next look is about the turn that was seen

	// users are the goroutine that reads and the requests; the last one ends the
	// connection.
	users atomic.Int32

	mu sync.Mutex
	// What follows is guarded by mu.

	streams map[uint32]*stream
	// cutOff are the streams that were reset here last, cutOffs how many there were. What the
	// client had sent before it knew is dropped. It does not know of MaxStreams at most, as
	// it could not have begun the next.
	cutOff  []resetStream
	cutOffs int
	serving int // requests that are not answered, those of reset streams included
	// idle is since when there are no streams, idleGot what the client had of answers then.
	idle    time.Time
	idleGot int64
	// waiting says that the reader waits for the client, cut that it was interrupted.
	waiting, cut bool
	going        goAway
	goAwayAt     time.Time
	lastID       uint32 // the last stream that is served, once that was told
	err          error  // why the connection is over
	ending       error  // why it will be when what is queued was sent

	// received is how much the client may still send, consumed what it may send again
	// but has not been told of.
	received, consumed int64

	queue
}

var errClientLeft = errors.New("the client has left")

// Serve serves a connection until it ends.
func Serve(c *edge.Conn) {
	h := &conn{c: c, idle: time.Now(), received: initialWindow}
	h.queue.init(h)
	h.users.Store(1)
	h.framer = newFramer(h)
	h.decoder = hpack.NewDecoder(headerTable, h.emit)
	h.decoder.SetMaxStringLength(c.Options.MaxHeaderBytes)
	h.effort = effort{credit: maxCredit, since: time.Now()}
	h.leaseTimer = time.AfterFunc(time.Hour, h.checkLease)
	h.leaseTimer.Stop()
	c.OnDrain(h.shutdown)
	h.read(0, true)
}

// newFramer makes one that reads what the connection has read ahead.
func newFramer(h *conn) *http2.Framer {
	f := http2.NewFramer(nil, (*aheadReader)(&h.c.In))
	f.SetReuseFrames()
	f.SetMaxReadFrameSize(frameSize)
	return f
}

// aheadReader reads from the buffer of an input, which has one by then.
type aheadReader edge.Input

// Read implements io.Reader.
func (r *aheadReader) Read(p []byte) (int, error) { return r.Buf.Read(p) }

// read is the goroutine that reads, until it has to leave that to another.
func (h *conn) read(turn uint64, first bool) {
	defer h.contain()
	var err error
	if first {
		err = h.greet()
	}
	for err == nil {
		h.flushHere()
		if h.isUnwelcome() {
			err = edge.ErrSlow
			break
		}
		if !h.head.open { // of a header all frames are to come soon
			if err = h.await(); err != nil {
				break
			}
			h.c.In.HeadBegun = false
		}
		for n, more := 1, true; err == nil && more; n++ {
			var st *stream
			if st, err = h.readFrame(); err == nil && st != nil && !h.serve(st, &turn) {
				return
			}
			more = err == nil && n < framesAtOnce && h.hasNextFrame() && h.mayQueue()
		}
		if err == nil {
			h.releaseInput()
		}
	}
	h.close(err)
}

// hasNextFrame says whether another frame is here, in this TLS record or the next.
func (h *conn) hasNextFrame() bool {
	in := &h.c.In
	return h.hasWholeFrame() || !h.head.open && in.Buf.Buffered() == 0 && in.FillHere() && h.hasWholeFrame()
}

// hasWholeFrame says whether the next frame is here.
func (h *conn) hasWholeFrame() bool {
	br := h.c.In.Buf
	n := br.Buffered()
	if n < frameHead {
		return false
	}
	head, _ := br.Peek(frameHead)
	return n >= frameHead+(int(head[0])<<16|int(head[1])<<8|int(head[2]))
}

// mayQueue says whether frames may be answered before what is queued has left.
func (h *conn) mayQueue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queued < h.limit()
}

// isUnwelcome says that the connection ends: nobody has been seen to use it, what is queued for
// it is not read, and many are like that.
func (h *conn) isUnwelcome() bool {
	c := h.c
	return c.Account.Load() == nil && c.Buffers.AnonymousFull() && !c.Out.TakesMore()
}

// releaseInput gives back what reading took when nothing more is there.
func (h *conn) releaseInput() {
	if h.head.open {
		return
	}
	if h.head.large {
		h.head.large, h.framer = false, newFramer(h)
	}
	h.c.In.ReleaseEmpty()
}

// contain ends the connection when its goroutine panics in the transport itself.
func (h *conn) contain() {
	if e := recover(); e != nil {
		h.c.Panics.Recovered("connection", e)
		h.fail(edge.ErrPanicked)
		h.release()
	}
}

// serve has a request served here, or by a goroutine of its own if it might wait for
// the client or others were slow. It reports whether this goroutine still reads.
func (h *conn) serve(st *stream, turn *uint64) bool {
	if st.req.Body != nil || st.tunnel || h.slow > 0 {
		h.slow = max(0, h.slow-1)
		h.c.Panics.Go(nil, "connection", st.serve)
		return true
	}
	st.turn = *turn + 1
	h.turn.Store(st.turn)
	if !h.watched.Load() {
		h.watched.Store(true)
		h.leaseTimer.Reset(takeOverAfter << h.calm.Load())
	}
	st.ctx.reads, st.ctx.turn = h, st.turn
	st.serve()
	*turn += 2
	return h.turn.CompareAndSwap(*turn-1, *turn)
}

// yield lets another goroutine read if this one, which serves st, does.
func (st *stream) yield() {
	if st.readsHere() {
		st.h.takeOver(st.turn)
	}
	st.turn = 0
}

// takeOver starts a goroutine that reads, if the one that serves in this turn still
// would.
func (h *conn) takeOver(turn uint64) (done bool) {
	if !h.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	h.c.Panics.Go(nil, "connection", func() { h.read(turn+1, false) })
	return true
}

// checkLease looks whether the request that is served has been for a while.
func (h *conn) checkLease() {
	defer h.c.Panics.Contain("connection")
	turn := h.turn.Load()
	if turn%2 == 0 {
		h.doubted.Store(false)
		h.calmDown()
		h.watched.Store(false)
		if turn = h.turn.Load(); turn%2 == 0 || h.watched.Swap(true) {
			return
		}
	}
	if h.seen.Swap(turn) != turn {
		// One that is served at this moment may be slow, two in a row are not the same.
		next := takeOverAfter
		if h.doubted.Swap(true) {
			h.doubted.Store(false)
			next <<= h.calmDown()
		}
		h.leaseTimer.Reset(next)
		return
	}
	h.calm.Store(0)
	h.doubted.Store(false)
	if !h.turn.CompareAndSwap(turn, turn+1) {
		// It is over, and the next may have begun already, for which this is the stepper.
		h.leaseTimer.Reset(takeOverAfter)
		return
	}
	h.watched.Store(false) // nobody reads at the moment
	h.slow = slowRow
	h.c.Panics.Go(nil, "connection", func() { h.read(turn+1, false) })
}

// calmDown notes a look that found nothing slow.
func (h *conn) calmDown() (calm int32) {
	calm = min(h.calm.Load()+1, mostCalm)
	h.calm.Store(calm)
	return calm
}

// open takes a stream in, or says with which code it is refused.
func (h *conn) open(st *stream) (http2.ErrCode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := int(h.c.Options.MaxStreams)
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
		h.idle, h.idleGot = time.Now(), h.acknowledgedLocked()
		if h.going == goAwayFinal {
			h.wakeReaderLocked()
		}
	}
}

// servedLocked is called when a request is answered or given up, whatever became of
// its stream.
func (h *conn) servedLocked(st *stream) {
	if !st.served {
		st.served = true
		h.serving--
	}
}
