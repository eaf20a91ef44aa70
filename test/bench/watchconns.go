package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// An http2Watches is a connection with watches over HTTP/2.
type http2Watches struct {
	*http2Conn
	of *watchers
}

// openHTTP2 opens watches on one connection. Those that are stuck get no window but the first.
func (w *watchers) openHTTP2(ctx context.Context, share []*watcher) (watchConn, error) {
	c, err := dialHTTP2(ctx, w.options.server, max(4<<10, w.options.buffer), narrowWindow)
	if err != nil {
		return nil, err
	}
	if w.options.request == nil {
		return &http2Watches{c, w}, nil
	}
	// Room for the beginning and the end of every stream: the connection's reader never waits.
	begun := make(chan error, 2*(len(share)+w.options.stuck))
	for i := range len(share) + w.options.stuck {
		st := &http2Stream{onHead: func(st *http2Stream) { begun <- statusError(st) }}
		window, one := uint32(0), share[0]
		if i < len(share) {
			window, one = wideWindow, share[i]
			st.onData = func(_ *http2Stream, p []byte) { w.events(one, p) }
		}
		st.onEnd = func(_ *http2Stream, err error) {
			if i < len(share) {
				w.ended()
			}
			begun <- errors.Join(errors.New("the watch ended"), err)
		}
		if err = c.open(w.options.request(one.number), st, window); err != nil {
			break
		}
	}
	patience := time.NewTimer(requestTime)
	defer patience.Stop()
	for range len(share) + w.options.stuck {
		if err != nil {
			break
		}
		select {
		case err = <-begun:
		case <-patience.C:
			err = errors.New("no answer")
		}
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("watch %d and those beside it: %w", share[0].number, err)
	}
	return &http2Watches{c, w}, nil
}

// statusError is the error that an answer is which is no watch.
func statusError(st *http2Stream) error {
	if st.response.status == 200 {
		return nil
	}
	return fmt.Errorf("status %d", st.response.status)
}

// read waits for the connection's own reader.
func (c *http2Watches) read() { <-c.reading }

// A socketConn is a watch over a WebSocket.
type socketConn struct {
	*conn
	of  *watchers
	one *watcher
}

// socketHeader asks for a WebSocket, as a browser does that shows a page of the server's.
const socketHeader = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: a3ViZXdlaXItYmVuY2gtMQ==\r\nOrigin: %s://%s\r\n"

func (w *watchers) openWebSocket(ctx context.Context, one *watcher) (watchConn, error) {
	scheme := "https"
	if w.options.server.tls == nil {
		scheme = "http"
	}
	c, err := w.openStream(ctx, one.number, fmt.Sprintf(socketHeader, scheme, w.options.server.addr), 101)
	if err != nil {
		return nil, err
	}
	return &socketConn{c, w, one}, nil
}

// read counts messages, each of which is an event.
func (s *socketConn) read() {
	defer s.of.ended()
	for {
		opcode, final, n, err := s.frame()
		if err != nil || opcode == 8 {
			return
		}
		if _, err := s.br.Discard(n); err != nil {
			return
		}
		events := 0
		if opcode <= 2 && final {
			events = 1
		}
		s.of.count(s.one, events, n)
	}
}

// frame reads the head of a frame. A server's are not masked.
func (s *socketConn) frame() (opcode byte, final bool, length int, err error) {
	head, err := s.br.Peek(2)
	if err != nil {
		return 0, false, 0, err
	}
	opcode, final, length = head[0]&0xf, head[0]&0x80 != 0, int(head[1]&0x7f)
	size := 2
	switch length {
	case 126:
		size = 4
	case 127:
		size = 10
	}
	if head, err = s.br.Peek(size); err != nil {
		return 0, false, 0, err
	}
	switch size {
	case 4:
		length = int(binary.BigEndian.Uint16(head[2:]))
	case 10:
		length = int(binary.BigEndian.Uint64(head[2:]))
	}
	_, err = s.br.Discard(size)
	return opcode, final, length, err
}

// openStalled opens n watches, some on each connection, that are never read, although they let the server send as
// much as it likes: what it sends stays in its own buffers. The returned function closes them.
func openStalled(ctx context.Context, o watchOptions, n int) (_ func(), err error) {
	var conns []*conn
	closeAll := func() {
		for _, c := range conns {
			c.close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	per := max(1, o.perConn)
	for i := 0; i < n; i += per {
		c, err := dialStalled(ctx, o, i, min(per, n-i))
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return closeAll, nil
}

// stalledBuffer is what a client's kernel takes for one that does not read.
const stalledBuffer = 4 << 10

// dialStalled opens a connection with n watches of which nothing but the first one's beginning is read.
func dialStalled(ctx context.Context, o watchOptions, i, n int) (*conn, error) {
	one := *o.server
	if o.over == HTTP2 && one.tls != nil {
		one.tls = one.tls.Clone()
		one.tls.NextProtos = []string{"h2"}
	}
	c, err := dial(ctx, &one, 4<<10)
	if err != nil {
		return nil, err
	}
	if err := c.narrow(); err != nil {
		c.close()
		return nil, err
	}
	if o.over != HTTP2 {
		if _, err = c.begin(one.encode(o.request(i))); err != nil {
			c.close()
		}
		return c, err
	}
	h := &http2Conn{server: o.server, nc: c, next: 1, streams: make(map[uint32]*http2Stream)}
	err = h.greet(wideWindow)
	for k := 0; k < n && err == nil; k++ {
		err = h.open(o.request(i+k), &http2Stream{}, 0)
	}
	if err == nil {
		_, err = h.framer.ReadFrame()
	}
	if err != nil {
		c.close()
	}
	return c, err
}

// narrow makes the kernel take little that is not read.
func (c *conn) narrow() error {
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	return nc.(interface{ SetReadBuffer(int) error }).SetReadBuffer(stalledBuffer)
}
