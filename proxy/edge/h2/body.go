package h2

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// body is the body of an HTTP/2 request. As an HTTP/1.1 body it is read by one
// goroutine at a time, which may still be at it when the response is complete.
type body struct {
	st *stream
	// length is the Content-Length, -1 without one; arrived counts what came.
	length, arrived int64

	// mu guards what follows, but for the bytes that the connection's reader fills in
	// behind buf.
	mu    sync.Mutex
	buf   []byte
	at    int // what is before it in buf was read
	err   error
	limit time.Time
	// expects is set while the client waits for a 100.
	expects bool
	// duplex gets what comes, once it has been started.
	duplex api.Duplex
	// account is whose it is.
	account *edge.Account
	// apart says that the window of the connection need not wait for what is unread, charged
	// for how much it does.
	apart   bool
	charged int64
	// consumed is what was read and the client not told of.
	consumed int64
	// came has something when there is something to read or nothing will come.
	came chan struct{}
}

func newBody(st *stream, length int64) *body {
	return &body{st: st, length: length, account: st.h.c.Holder(), expects: st.expects, came: make(chan struct{}, 1)}
}

// SetReadDeadline bounds the reading of the whole body, see api.Request.
func (b *body) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = t
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var timer *time.Timer
	for {
		if n, err := b.readLocked(p); n > 0 || err != nil {
			return n, err
		}
		if b.expects {
			b.expects = false
			b.mu.Unlock()
			b.st.continue100()
			b.mu.Lock()
			continue
		}
		timeout := b.st.h.c.Options.BodyIdleTimeout
		if !b.limit.IsZero() {
			timeout = min(timeout, time.Until(b.limit))
		}
		if timeout <= 0 {
			b.err = os.ErrDeadlineExceeded
			continue
		}
		if timer == nil {
			timer = time.NewTimer(timeout)
			defer timer.Stop()
		}
		b.mu.Unlock()
		late := false
		select {
		case <-b.came:
		case <-timer.C:
			late = true
		}
		b.mu.Lock()
		if late && b.at == len(b.buf) && b.err == nil {
			b.err = os.ErrDeadlineExceeded
		}
	}
}

// readLocked reads what is here, or says why nothing will be.
func (b *body) readLocked(p []byte) (int, error) {
	n := copy(p, b.buf[b.at:])
	if n == 0 {
		return 0, b.err
	}
	b.at += n
	switch rest := b.buf[b.at:]; {
	case b.apart && cap(b.buf) > edge.SmallBuffer && len(rest) < cap(b.buf)/4:
		b.setLocked(slices.Clone(rest)) // nobody knows when more comes
		b.at = 0
	case len(rest) == 0:
		b.emptiedLocked()
	}
	b.consumedLocked(n)
	return n, nil
}

// chargeLocked says how many of n bytes that came the window of the connection waits for.
func (b *body) chargeLocked(n int) (charged int) {
	if b.apart && b.st.h.c.Buffers.AddUnread(b.account, int64(n)) {
		return 0
	}
	b.charged += int64(n)
	return n
}

// consumedLocked lets the client send what was read again, in large steps. What is the
// connection's is not held back by each body: together they would hold all of it.
func (b *body) consumedLocked(n int) {
	b.consumed += int64(n)
	back := min(int64(n), b.charged)
	b.charged -= back
	h := b.st.h
	h.c.Buffers.RemoveUnread(b.account, int64(n)-back)
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.consumed >= uploadBuffer/4 {
		if !b.st.gotEnd && h.streams[b.st.id] == b.st && h.err == nil {
			b.st.received += b.consumed
			h.appendWindowUpdate(b.st.id, b.consumed)
		}
		b.consumed = 0
	}
	h.giveBackLocked(back)
	h.flushSoonLocked()
}

var errOverShare = errors.New("the user has left more unread than a share of the memory for that")

// take reads n bytes of the body, for the connection's reader, and says how many of
// them anybody wants, and how many the window of the connection waits for. After errShare
// they are not read.
func (b *body) take(r *bufio.Reader, n int) (kept, held int, err error) {
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
	// Read may have gone back to the start meanwhile, as it had read everything.
	b.setLocked(append(b.buf, room...))
	b.signal()
	held = b.chargeLocked(n)
	if b.duplex != nil {
		b.passBufferedLocked() // it was started meanwhile
	}
	return n, held, nil
}

// growLocked makes room for n bytes more, if its user may have it. There are never more than
// the window allows.
func (b *body) growLocked(n int) bool {
	rest := b.buf[b.at:]
	size := len(rest) + n
	if b.length > 0 && b.length < edge.SmallBuffer {
		size = max(size, int(b.length))
	}
	if size > cap(b.buf)-cap(b.buf)/4 {
		size = max(size, min(2*cap(b.buf), uploadBuffer))
		if b.st.h.c.Buffers.OverShare(b.account, int64(size-cap(b.buf))) {
			return false
		}
		b.setLocked(append(make([]byte, 0, size), rest...))
	} else {
		b.buf = b.buf[:copy(b.buf, rest)]
	}
	b.at = 0
	return true
}

// setLocked takes buf, which counts as held until another takes its place.
func (b *body) setLocked(buf []byte) {
	b.st.h.c.Buffers.Hold(b.account, int64(cap(buf)-cap(b.buf)))
	b.buf = buf
}

// emptiedLocked is for when everything was read. Where much is held the room is given back.
func (b *body) emptiedLocked() {
	b.at = 0
	if b.st.h.c.Buffers.UnderPressure() {
		b.setLocked(nil)
	} else {
		b.buf = b.buf[:0]
	}
}

// end is called with the reason why nothing more comes: io.EOF if it was all.
func (b *body) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.signal()
	}
}

// seal ends all reading. It returns for how much of what came, and nobody has read, the
// window of the connection waits.
func (b *body) seal() (unread int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unread = b.charged
	b.st.h.c.Buffers.RemoveUnread(b.account, int64(len(b.buf)-b.at)-unread)
	b.setLocked(nil)
	b.at, b.consumed, b.charged = 0, 0, 0
	b.err = edge.ErrBodyClosed
	b.signal()
	return unread
}

func (b *body) signal() {
	select {
	case b.came <- struct{}{}:
	default:
	}
}

// gotData notes that a DATA frame was read: lost bytes of its window were no data. A body of
// another length than was announced is refused, as any other fault of a client.
func (st *stream) gotData(lost int64, end bool) error {
	h, b := st.h, st.body
	b.mu.Lock()
	arrived := b.arrived
	b.mu.Unlock()
	wrong := b.length >= 0 && (arrived > b.length || end && arrived < b.length)
	h.mu.Lock()
	open := h.streams[st.id] == st
	if wrong && open {
		h.mu.Unlock()
		return h.reject(st.id, http2.ErrCodeProtocol)
	}
	switch {
	case !open:
	case end:
		h.gotEndLocked(st)
		if st.duplex {
			h.stopSoonLocked(st) // the client is gone, as when it closes a connection
		}
	case lost > 0 && !st.sentEnd:
		st.received += lost
		h.appendWindowUpdate(st.id, lost)
	}
	h.mu.Unlock()
	switch {
	case wrong:
		b.end(errProtocol)
	case end:
		b.end(io.EOF)
	}
	return nil
}

// attributeTo has what is unread count for another account.
func (b *body) attributeTo(a *edge.Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, unread := int64(cap(b.buf)), int64(len(b.buf)-b.at)-b.charged
	b.account.Held.Add(-held)
	b.account.Unread.Add(-unread)
	b.account = a
	a.Held.Add(held)
	a.Unread.Add(unread)
}
