package h2

import (
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

const (
	// headerTable is the size of HPACK's dynamic table for a client's headers.
	headerTable = 4096
	// framesAtOnce is how many frames are read before their responses are written.
	framesAtOnce = 64

	// takeOverAfter is how long a request may block the reading of its connection, up to twice
	// that, before another goroutine continues to read. While all requests are quick, checks become
	// rarer by a factor of up to 1<<maxBackoff: on a busy connection each check costs a thread's
	// sleep.
	takeOverAfter = 500 * time.Microsecond
	maxBackoff    = 3
	// slowRow is how many requests get their own goroutines after one request was slow.
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

// newFramer returns a Framer that reads from the connection's input buffer.
func newFramer(c *edge.Conn) *http2.Framer {
	f := http2.NewFramer(nil, (*aheadReader)(&c.In))
	f.SetReuseFrames()
	f.SetMaxReadFrameSize(frameSize)
	return f
}

// aheadReader reads from the buffer of an input, which must have one.
type aheadReader edge.Input

func (r *aheadReader) Read(p []byte) (int, error) { return r.Buf.Read(p) }

// read is the loop of the goroutine that reads, until another goroutine takes over.
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

// contain ends the connection after a panic in the transport itself.
func (h *conn) contain() {
	if e := recover(); e != nil {
		h.Panics.Recovered("connection", e)
		h.fail(edge.ErrPanicked)
		h.release()
	}
}

// isUnwelcome reports whether the connection must end: its user is unknown, its client does not
// read, and there are many such connections.
func (h *conn) isUnwelcome() bool {
	return h.IsAnonymous() && h.Buffers.AnonymousFull() && !h.Out.TakesMore()
}

// hasNextFrame reports whether another complete frame has arrived, in this TLS record or the next.
func (h *conn) hasNextFrame() bool {
	return h.hasWholeFrame() || !h.head.open && h.In.Buf.Buffered() == 0 && h.In.FillHere() && h.hasWholeFrame()
}

// hasWholeFrame reports whether the next frame has arrived completely.
func (h *conn) hasWholeFrame() bool {
	n := h.In.Buf.Buffered()
	if n < frameHead {
		return false
	}
	head, _ := h.In.Buf.Peek(frameHead)
	return n >= frameHead+(int(head[0])<<16|int(head[1])<<8|int(head[2]))
}

// mayQueue reports whether more may be queued in response to frames before the queue is written.
func (h *conn) mayQueue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queued < h.limit()
}

// releaseInput frees the input buffer if it is empty.
func (h *conn) releaseInput() {
	if h.head.open {
		return
	}
	if h.large {
		h.large, h.framer = false, newFramer(h.Conn)
	}
	h.In.ReleaseEmpty()
}

// serve serves a request on this goroutine, or on its own goroutine if the request might wait for
// the client or if recent requests were slow. It reports whether this goroutine still reads.
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

// checkLease checks whether the request that the reading goroutine serves has taken long.
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
		// That request is complete. The next one may have begun already; the timer will check it.
		l.timer.Reset(takeOverAfter)
		return
	}
	l.watched.Store(false) // nobody reads at the moment
	h.slow = slowRow
	h.Panics.Go(nil, "connection", func() { l.read(turn + 1) })
}

// backOff records a check that found nothing slow.
func (l *lease) backOff() (backoff int32) {
	backoff = min(l.rareness.Load()+1, maxBackoff)
	l.rareness.Store(backoff)
	return backoff
}
