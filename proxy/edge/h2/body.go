package h2

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

var errOverShare = errors.New("the user has left more unread than a share of the memory for that")

// body is the body of a request. One goroutine at a time reads it, like an HTTP/1.1 body, and may
// still do so when the response is complete.
type body struct {
	st *stream
	// length is the Content-Length, -1 without one; arrived counts the bytes that have arrived.
	length, arrived int64

	// mu guards the fields below, except for the bytes that the connection's reader appends to buf.
	// It is locked before the connection's mu.
	mu    sync.Mutex
	buf   []byte
	at    int // what is before it in buf was read
	err   error
	limit time.Time
	// expects is set while the client waits for a 100.
	expects bool
	// duplex receives the bytes once it has been started.
	duplex api.Duplex
	// account is the user's share of buffered bytes.
	account *edge.Account
	flow    bodyFlow
	// came receives a value when there is something to read or nothing more will arrive.
	came chan struct{}
}

// bodyFlow is the flow control state of a body.
type bodyFlow struct {
	// apart is true if the connection's window is extended for unread data of this body; charged is
	// how many bytes of memory that is charged for.
	apart   bool
	charged int64
	// consumed counts the bytes that were read since the last WINDOW_UPDATE.
	consumed int64
}

func newBody(st *stream, length int64) *body {
	return &body{st: st, length: length, account: st.h.Account(), expects: st.expects, came: make(chan struct{}, 1)}
}

// SetReadDeadline bounds the reading of the whole body, see api.Request.
func (b *body) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = t
	signal(b.came)
	return nil
}

func (b *body) Read(p []byte) (int, error) { return b.read(p, b.st.h.Options.BodyIdleTimeout) }

// read reads bytes that arrive before the read deadline and within the timeout. After either, the
// body fails. A timeout of 0 means none.
func (b *body) read(p []byte, timeout time.Duration) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var deadline time.Time
	for {
		n, err := b.readLocked(p)
		switch {
		case n > 0 || err != nil:
			return n, err
		case b.expects:
			b.expects = false
			b.mu.Unlock()
			b.st.continue100()
			b.mu.Lock()
			continue
		case timeout > 0 && deadline.IsZero():
			deadline = time.Now().Add(timeout)
		}
		until := deadline
		if until.IsZero() || !b.limit.IsZero() && b.limit.Before(until) {
			until = b.limit
		}
		b.mu.Unlock()
		inTime := await(b.came, until)
		b.mu.Lock()
		switch {
		case inTime || b.at < len(b.buf) || b.err != nil:
		case timeout == 0:
			return 0, os.ErrDeadlineExceeded
		default:
			b.err = os.ErrDeadlineExceeded
		}
	}
}

// readLocked reads buffered bytes, or returns why there will be none.
func (b *body) readLocked(p []byte) (int, error) {
	n := copy(p, b.buf[b.at:])
	if n == 0 {
		return 0, b.err
	}
	b.at += n
	switch rest := b.buf[b.at:]; {
	case b.flow.apart && cap(b.buf) > edge.SmallBuffer && len(rest) < cap(b.buf)/4:
		b.setLocked(slices.Clone(rest)) // nobody knows when more comes
		b.at = 0
	case len(rest) == 0:
		b.at = 0
		if b.st.h.Buffers.UnderPressure() {
			b.setLocked(nil)
		} else {
			b.buf = b.buf[:0]
		}
	}
	b.consumedLocked(n)
	return n, nil
}

// setLocked replaces the buffer, which counts as held memory.
func (b *body) setLocked(buf []byte) {
	b.st.h.Buffers.Hold(b.account, int64(cap(buf)-cap(b.buf)))
	b.buf = buf
}

// consumedLocked lets the client send as many bytes again as were read, in large steps. Unread
// bodies do not hold back the connection's window: together they would use up all of it.
func (b *body) consumedLocked(n int) {
	f, h := &b.flow, b.st.h
	f.consumed += int64(n)
	back := min(int64(n), f.charged)
	f.charged -= back
	h.Buffers.RemoveUnread(b.account, int64(n)-back)
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.consumed >= uploadBuffer/4 {
		if !b.st.gotEnd && h.isOpenLocked(b.st) {
			b.st.received += f.consumed
			h.appendWindowUpdate(b.st.id, f.consumed)
		}
		f.consumed = 0
	}
	h.giveBackLocked(back)
	h.flushSoonLocked()
}

// take reads n bytes of the body for the connection's reader. kept is how many of them are wanted,
// held for how many the connection's window waits. After errOverShare the bytes are not read.
func (b *body) take(r *bufio.Reader, n int) (wanted, held int, err error) {
	b.mu.Lock()
	b.arrived += int64(n)
	if b.err != nil {
		b.mu.Unlock()
		_, err := r.Discard(n)
		return 0, 0, err
	}
	if b.duplex != nil {
		b.mu.Unlock()
		n, err := b.pass(r, n)
		return n, n, err
	}
	if len(b.buf)+n > cap(b.buf) && !b.growLocked(n) {
		b.mu.Unlock()
		return 0, 0, errOverShare
	}
	room := b.buf[len(b.buf) : len(b.buf)+n]
	b.mu.Unlock()
	if _, err := io.ReadFull(r, room); err != nil {
		return 0, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, 0, nil
	}
	// Read may have reset the buffer meanwhile, because it had read everything.
	b.setLocked(append(b.buf, room...))
	signal(b.came)
	if !b.flow.apart || !b.st.h.Buffers.AddUnread(b.account, int64(n)) {
		b.flow.charged += int64(n)
		held = n
	}
	if b.duplex != nil {
		b.passBufferedLocked() // it was started meanwhile
	}
	return n, held, nil
}

// growLocked makes room for n more bytes, unless the user's share is exhausted. The window bounds
// the total.
func (b *body) growLocked(n int) bool {
	rest := b.buf[b.at:]
	size := len(rest) + n
	if b.length > 0 && b.length < edge.SmallBuffer {
		size = max(size, int(b.length))
	}
	if size > cap(b.buf)-cap(b.buf)/4 {
		size = max(size, min(2*cap(b.buf), uploadBuffer))
		if b.st.h.Buffers.OverShare(b.account, int64(size-cap(b.buf))) {
			return false
		}
		b.setLocked(append(make([]byte, 0, size), rest...))
	} else {
		b.buf = b.buf[:copy(b.buf, rest)]
	}
	b.at = 0
	return true
}

// passTo passes the buffered and all further bytes to a Duplex that was started.
func (b *body) passTo(d api.Duplex) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.duplex = d
	b.passBufferedLocked()
}

// passBufferedLocked passes on the bytes that arrived before the Duplex was started.
func (b *body) passBufferedLocked() {
	p := b.buf[b.at:]
	b.setLocked(nil)
	b.at = 0
	if len(p) > 0 {
		b.receiveLocked(p)
	}
}

// pass passes n bytes to the Duplex for the connection's reader. It returns how many of them the
// Duplex wants.
func (b *body) pass(r *bufio.Reader, n int) (wanted int, err error) {
	for n > 0 {
		if _, err := r.Peek(1); err != nil {
			return wanted, err
		}
		p, _ := r.Peek(min(n, r.Buffered()))
		b.mu.Lock()
		if b.err == nil {
			b.flow.charged += int64(len(p))
			b.receiveLocked(p)
			wanted += len(p)
		}
		b.mu.Unlock()
		n -= len(p)
		if _, err := r.Discard(len(p)); err != nil {
			return wanted, err
		}
	}
	return wanted, nil
}

// receiveLocked passes on a piece. The Duplex does not block, and is stopped only after seal.
func (b *body) receiveLocked(p []byte) {
	err := b.st.h.Receive(b.duplex, p)
	b.consumedLocked(len(p))
	if err == nil {
		return
	}
	if b.err == nil {
		b.err = err
	}
	if !errors.Is(err, edge.ErrReceived) {
		b.st.Abort()
	}
}

// setApart lets the client send on other streams although this stream has unread data. That data is
// bounded by the stream's own window and, over all connections, by the memory for it; the time is
// not bounded.
func (b *body) setApart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow.apart = true
	h := b.st.h
	if !h.Buffers.AddUnread(b.account, b.flow.charged) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveBackLocked(b.flow.charged)
	b.flow.charged = 0
}

// attributeTo charges unread data to another account.
func (b *body) attributeTo(a *edge.Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.account.Move(a, int64(cap(b.buf)), int64(len(b.buf)-b.at)-b.flow.charged)
	b.account = a
}

// isWrongLength reports whether more bytes arrived than announced or, at the end, fewer.
func (b *body) isWrongLength(end bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.length >= 0 && (b.arrived > b.length || end && b.arrived < b.length)
}

// end is called with the reason why nothing more will arrive: io.EOF if the body is complete.
func (b *body) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		signal(b.came)
	}
}

// seal ends all reading. It returns for how many unread bytes the connection's window waits.
func (b *body) seal() (unread int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unread = b.flow.charged
	b.st.h.Buffers.RemoveUnread(b.account, int64(len(b.buf)-b.at)-unread)
	b.setLocked(nil)
	b.at, b.flow.consumed, b.flow.charged = 0, 0, 0
	b.err = edge.ErrBodyClosed
	signal(b.came)
	return unread
}
