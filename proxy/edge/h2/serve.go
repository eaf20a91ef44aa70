package h2

import (
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

const (
	// headerTable is the size of HPACK's dynamic table of a client's headers.
	headerTable = 4096
	// framesAtOnce is how many frames are read before what they caused is sent.
	framesAtOnce = 64

	// takeOverAfter is how long a request may keep its connection from being read, to twice
	// that, before another goroutine goes on reading. Where all requests are quick the checks are
	// rarer, by up to 1<<maxBackoff: on a busy connection each costs a thread's sleep.
	takeOverAfter = 500 * time.Microsecond
	maxBackoff    = 3
	// slowRow is how many requests are served by goroutines of their own after the reading had
	// to be taken over from one.
	slowRow = 32
)

// Serve serves a connection until it ends.
func Serve(c *edge.Conn) {
	h := newConn(c)
	c.OnDrain(h.shutdown)
	h.read(0, true)
}

func newConn(c *edge.Conn) *conn {
	h := &conn{Conn: c, streamSet: streamSet{idle: time.Now()}, receiveWindow: receiveWindow{received: initialWindow}}
	h.queue = queue{c: c, window: initialWindow, initial: initialWindow, maxFrame: frameSize, sendNoTable: true}
	h.flusher.flushed.L = &h.mu
	h.users.Store(1)
	h.framer = newFramer(c)
	h.decoder = hpack.NewDecoder(headerTable, h.emit)
	h.decoder.SetMaxStringLength(c.Options.MaxHeaderBytes)
	h.credit, h.creditSince = maxCredit, time.Now()
	h.lease.read = func(turn uint64) { h.read(turn, false) }
	h.lease.timer = time.AfterFunc(time.Hour, h.checkLease)
	h.lease.timer.Stop()
	return h
}

// newFramer makes one that reads what the connection has read ahead.
func newFramer(c *edge.Conn) *http2.Framer {
	f := http2.NewFramer(nil, (*aheadReader)(&c.In))
	f.SetReuseFrames()
	f.SetMaxReadFrameSize(frameSize)
	return f
}

// aheadReader reads from the buffer of an input, which has one by then.
type aheadReader edge.Input

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
			h.In.HeadBegun = false
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

// contain ends the connection when its goroutine panics in the transport itself.
func (h *conn) contain() {
	if e := recover(); e != nil {
		h.Panics.Recovered("connection", e)
		h.fail(edge.ErrPanicked)
		h.release()
	}
}

// isUnwelcome reports whether the connection ends: its user is not known, what is queued for
// it is not read, and many are like that.
func (h *conn) isUnwelcome() bool {
	return h.IsAnonymous() && h.Buffers.AnonymousFull() && !h.Out.TakesMore()
}

// hasNextFrame reports whether another frame is here, in this TLS record or the next.
func (h *conn) hasNextFrame() bool {
	return h.hasWholeFrame() || !h.head.open && h.In.Buf.Buffered() == 0 && h.In.FillHere() && h.hasWholeFrame()
}

// hasWholeFrame reports whether the next frame is here.
func (h *conn) hasWholeFrame() bool {
	n := h.In.Buf.Buffered()
	if n < frameHead {
		return false
	}
	head, _ := h.In.Buf.Peek(frameHead)
	return n >= frameHead+(int(head[0])<<16|int(head[1])<<8|int(head[2]))
}

// mayQueue reports whether more may be queued in response to frames before the queue has left.
func (h *conn) mayQueue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queued < h.limit()
}

// releaseInput gives back what reading took when nothing more is there.
func (h *conn) releaseInput() {
	if h.head.open {
		return
	}
	if h.large {
		h.large, h.framer = false, newFramer(h.Conn)
	}
	h.In.ReleaseEmpty()
}

// serve has a request served here, or by a goroutine of its own if it might wait for
// the client or others were slow. It reports whether this goroutine still reads.
func (h *conn) serve(st *stream, turn *uint64) bool {
	if st.req.Body != nil || st.tunnel || h.slow > 0 {
		h.slow = max(0, h.slow-1)
		h.Panics.Go(nil, "connection", st.serve)
		return true
	}
	l := &h.lease
	st.turn = *turn + 1
	l.turn.Store(st.turn)
	if !l.watched.Load() {
		l.watched.Store(true)
		l.timer.Reset(takeOverAfter << l.rareness.Load())
	}
	st.ctx.reads, st.ctx.turn = h, st.turn
	st.serve()
	*turn += 2
	return l.turn.CompareAndSwap(*turn-1, *turn)
}

// checkLease looks whether the request that is served has been for a while.
func (h *conn) checkLease() {
	defer h.Panics.Contain("connection")
	l := &h.lease
	turn := l.turn.Load()
	if turn%2 == 0 {
		l.backOff()
		l.watched.Store(false)
		if turn = l.turn.Load(); turn%2 == 0 || l.watched.Swap(true) {
			return
		}
	}
	if l.seen.Swap(turn) != turn {
		l.timer.Reset(takeOverAfter << l.backOff())
		return
	}
	l.rareness.Store(0)
	if !l.turn.CompareAndSwap(turn, turn+1) {
		// It is over, and the next may have begun already, which the timer is for.
		l.timer.Reset(takeOverAfter)
		return
	}
	l.watched.Store(false) // nobody reads at the moment
	h.slow = slowRow
	h.Panics.Go(nil, "connection", func() { l.read(turn + 1) })
}

// backOff notes a check that found nothing slow.
func (l *lease) backOff() (backoff int32) {
	backoff = min(l.rareness.Load()+1, maxBackoff)
	l.rareness.Store(backoff)
	return backoff
}
