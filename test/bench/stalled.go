package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// openStalled opens n watches, several on each connection, that are never read although their
// flow-control windows are wide: unsent data stays in the server's own buffers. The returned
// function closes them.
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

const (
	// stalledBuffer is the size of the client's kernel receive buffer.
	stalledBuffer = 4 << 10
	// stalledSegment is the maximum segment size. It also makes the server's kernel buffer less for
	// a peer with little data in flight; with loopback's default size it would be megabytes.
	stalledSegment = 1 << 10
)

// stalledDialer limits how much unread data the kernel accepts.
func stalledDialer() net.Dialer {
	return net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, stalledBuffer),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, stalledSegment))
		})
		return errors.Join(err, set)
	}}
}

// dialStalled opens a connection with n watches and reads only the beginning of the first one.
func dialStalled(ctx context.Context, o watchOptions, i, n int) (*conn, error) {
	one := *o.server
	if o.over == HTTP2 && one.tls != nil {
		one.tls = one.tls.Clone()
		one.tls.NextProtos = []string{"h2"}
	}
	c, err := dialBy(ctx, stalledDialer(), &one, 4<<10)
	if err != nil {
		return nil, err
	}
	if o.over != HTTP2 {
		r, err := c.begin(one.encode(o.request(i)))
		if err == nil && r.status != 200 {
			err = fmt.Errorf("watch %d: status %d", i, r.status)
		}
		if err != nil {
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
