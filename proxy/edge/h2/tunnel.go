package h2

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

var errNoTunnel = errors.New("what the request names does not become a WebSocket")

// agreed is the response, or another one in its place if it switches protocols for who
// did not ask for it, or does not for who did: a 200 would say that it does.
func (st *stream) agreed(resp *api.Response) *api.Response {
	srv := st.h.c
	_, duplex := resp.Stream.(api.Duplex)
	switches := duplex || resp.Upgrade != nil
	if switches == st.tunnel || !switches && resp.Status/100 != 2 {
		return resp
	}
	if resp.Stream != nil {
		srv.StopStream(resp.Stream)
	}
	if switches {
		srv.Log.Error("the handler upgrades a request that does not ask for it", "method", st.req.Method, "path", st.req.Path)
		return srv.Replace(resp, srv.InternalError(edge.ErrNoUpgrade), edge.ErrNoUpgrade)
	}
	return srv.Replace(resp, srv.NoTunnel(errNoTunnel), errNoTunnel)
}

// agreement is the header of an agreement without the lines of HTTP/1.1's handshake
// that appendHead2 would let through.
func agreement(header api.Header) api.Header {
	kept := make(api.Header, 0, len(header))
	for _, f := range header {
		if !strings.EqualFold(f.Name, "Sec-WebSocket-Accept") {
			kept = append(kept, f)
		}
	}
	return kept
}

// resetCode tells why a stream ends before its response is complete: in a tunnel it is
// what the reset of a connection is (RFC 8441, 5).
func (st *stream) resetCode() http2.ErrCode {
	if st.tunnel {
		return http2.ErrCodeCancel
	}
	return http2.ErrCodeInternal
}

// passTo has a Duplex that was started get what came and what comes.
func (b *body) passTo(d api.Duplex) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.duplex = d
	b.passBufferedLocked()
}

// passBufferedLocked passes on what came before the Duplex was started.
func (b *body) passBufferedLocked() {
	p := b.buf[b.at:]
	b.setLocked(nil)
	b.at = 0
	if len(p) > 0 {
		b.receiveLocked(p)
	}
}

// pass passes n bytes on to the Duplex, for the connection's reader, and says how many
// of them that wants.
func (b *body) pass(r *bufio.Reader, n int) (kept int, err error) {
	for n > 0 {
		if _, err := r.Peek(1); err != nil {
			return kept, err
		}
		p, _ := r.Peek(min(n, r.Buffered()))
		b.mu.Lock()
		if b.err == nil {
			b.charged += int64(len(p))
			b.receiveLocked(p)
			kept += len(p)
		}
		b.mu.Unlock()
		n -= len(p)
		if _, err := r.Discard(len(p)); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// receiveLocked passes a piece on. The Duplex does not block, and is stopped behind seal
// only.
func (b *body) receiveLocked(p []byte) {
	err := b.st.h.c.Receive(b.duplex, p)
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

// upgrade lets the response take the stream over until it returns.
func (st *stream) upgrade(resp *api.Response) {
	h := st.h
	u := &upgradedStream{st: st}
	h.mu.Lock()
	st.upgraded = true
	h.mu.Unlock()
	st.body.setApart()
	err := st.sendHead(200, agreement(resp.Header), -1, false)
	if err == nil {
		st.flush()
		err = h.c.RunUpgrade(resp, u)
	}
	_ = u.Close()
	st.finish(resp, u.written.Load(), err)
}

// setApart lets the client send on other streams what it likes, however much of this
// one nobody reads: that is bounded by the stream's own window, and over all connections
// by unreadAllowed, and nobody knows for how long.
func (b *body) setApart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apart = true
	h := b.st.h
	if !h.c.Buffers.AddUnread(b.account, b.charged) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveBackLocked(b.charged)
	b.charged = 0
}

// upgradedStream is a stream as an Upgrade gets it: a net.Conn.
type upgradedStream struct {
	st      *stream
	writing sync.Mutex
	written atomic.Int64
}

// Read implements net.Conn. It is for one goroutine at a time.
func (u *upgradedStream) Read(p []byte) (int, error) {
	b := u.st.body
	for len(p) > 0 {
		b.mu.Lock()
		n, err := b.readLocked(p)
		limit := b.limit
		b.mu.Unlock()
		switch {
		case n > 0 || err != nil:
			return n, err
		case limit.IsZero():
			<-b.came
		case !b.await(limit):
			return 0, os.ErrDeadlineExceeded
		}
	}
	return 0, nil
}

// await waits for something to happen before the limit.
func (b *body) await(limit time.Time) bool {
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	select {
	case <-b.came:
		return true
	case <-timer.C:
		return false
	}
}

// Write implements net.Conn. It waits for the client's window.
func (u *upgradedStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	n, err := u.st.sendBytes(p, false, true)
	u.written.Add(int64(n))
	return n, err
}

// CloseWrite ends the sending side.
func (u *upgradedStream) CloseWrite() error {
	u.writing.Lock()
	defer u.writing.Unlock()
	_, err := u.st.sendBytes(nil, true, true)
	if errors.Is(err, edge.ErrStreamOver) {
		return nil // it has ended
	}
	return err
}

// Close implements net.Conn. A stream that neither side has ended is cut off; after the
// client's end there is nothing to cut, and this side ends as well.
func (u *upgradedStream) Close() error {
	st, h := u.st, u.st.h
	h.mu.Lock()
	if st.unsendableLocked() == nil {
		if st.gotEnd && u.writing.TryLock() {
			h.queueDataLocked(st, &pieces{}, 0, true)
			u.writing.Unlock()
		} else {
			h.resetLocked(st, st.resetCode(), net.ErrClosed)
		}
		h.flushSoonLocked()
	}
	h.mu.Unlock()
	st.body.end(net.ErrClosed)
	return nil
}

// LocalAddr implements net.Conn.
func (u *upgradedStream) LocalAddr() net.Addr { return u.st.h.c.NetConn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (u *upgradedStream) RemoteAddr() net.Addr { return u.st.h.c.NetConn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (u *upgradedStream) SetDeadline(t time.Time) error {
	_ = u.SetReadDeadline(t)
	return u.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (u *upgradedStream) SetReadDeadline(t time.Time) error {
	b := u.st.body
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = t
	b.signal()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (u *upgradedStream) SetWriteDeadline(t time.Time) error {
	h := u.st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	u.st.deadline = t
	u.st.wakeLocked()
	return nil
}
