package h2

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

var errNoTunnel = errors.New("what the request names does not become a WebSocket")

// agreed returns the response, or an error response if the handler switches protocols and the
// client did not request it, or vice versa: a 200 would mean that the protocol was switched.
func (st *stream) agreed(resp *api.Response) *api.Response {
	_, duplex := resp.Stream.(api.Duplex)
	switches := duplex || resp.Upgrade != nil
	switch {
	case switches == st.tunnel, !switches && resp.Status/100 != 2:
		return resp
	case switches:
		return st.h.Replace(resp, st.h.RejectUpgrade(&st.req), edge.ErrNoUpgrade)
	}
	return st.h.Replace(resp, st.h.BadRequest(reason.NotUpgraded, errNoTunnel), errNoTunnel)
}

// upgrade lets the response take the stream over until it returns.
func (st *stream) upgrade(resp *api.Response) {
	h := st.h
	u := &upgradedStream{st: st}
	h.mu.Lock()
	st.upgraded = true
	h.mu.Unlock()
	st.body.setApart()
	err := st.sendHead(responseHead{200, resp.Header, -1}, false)
	if err == nil {
		h.flush()
		err = h.RunUpgrade(resp, u)
	}
	_ = u.Close()
	st.finish(resp, u.written.Load(), err)
}

// upgradedStream presents a stream to an Upgrade as a net.Conn.
type upgradedStream struct {
	st      *stream
	writing sync.Mutex
	written atomic.Int64
}

// Read implements net.Conn. It is for one goroutine at a time.
func (u *upgradedStream) Read(p []byte) (int, error) { return u.st.body.read(p, 0) }

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

// Close implements net.Conn. A stream that neither side has ended is reset; after the
// client's end there is nothing to reset, and this side ends as well.
func (u *upgradedStream) Close() error {
	st, h := u.st, u.st.h
	h.mu.Lock()
	if st.unsendableLocked() == nil {
		if st.gotEnd && u.writing.TryLock() {
			h.queueDataLocked(st, &pieces{}, 0, true)
			h.sentEndLocked(st)
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

func (u *upgradedStream) LocalAddr() net.Addr { return u.st.h.NetConn.LocalAddr() }

func (u *upgradedStream) RemoteAddr() net.Addr { return u.st.h.NetConn.RemoteAddr() }

func (u *upgradedStream) SetDeadline(t time.Time) error {
	_ = u.SetReadDeadline(t)
	return u.SetWriteDeadline(t)
}

func (u *upgradedStream) SetReadDeadline(t time.Time) error { return u.st.body.SetReadDeadline(t) }

func (u *upgradedStream) SetWriteDeadline(t time.Time) error {
	u.st.h.mu.Lock()
	defer u.st.h.mu.Unlock()
	u.st.deadline = t
	u.st.wakeLocked()
	return nil
}
