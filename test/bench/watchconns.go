package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// An http2Watches is an HTTP/2 connection with watches.
type http2Watches struct {
	*http2Conn
	of *watchers
}

// openHTTP2 opens watches on one connection. The windows of stuck watches are never enlarged.
func (w *watchers) openHTTP2(ctx context.Context, share []*watcher) (watchConn, error) {
	c, err := dialHTTP2(ctx, w.options.server, max(4<<10, w.options.buffer), narrowWindow)
	if err != nil {
		return nil, err
	}
	if w.options.request == nil {
		return &http2Watches{c, w}, nil
	}
	// The buffer holds the beginning and the end of every stream, so that the reading goroutine
	// never blocks.
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
	timer := time.NewTimer(requestTime)
	defer timer.Stop()
	for range len(share) + w.options.stuck {
		if err != nil {
			break
		}
		select {
		case err = <-begun:
		case <-timer.C:
			err = errors.New("no response")
		}
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("watch %d and others on its connection: %w", share[0].number, err)
	}
	return &http2Watches{c, w}, nil
}

// statusError returns an error if the response is not a watch.
func statusError(st *http2Stream) error {
	if st.response.status == 200 {
		return nil
	}
	return fmt.Errorf("status %d", st.response.status)
}

// read waits for the connection's reading goroutine.
func (c *http2Watches) read() { <-c.reading }

// A socketConn is a watch over a WebSocket.
type socketConn struct {
	*conn
	of  *watchers
	one *watcher
}

// socketHeader requests a WebSocket as a browser does for a page of the server's own origin.
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

// frame reads the header of a frame. Servers do not mask frames.
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
