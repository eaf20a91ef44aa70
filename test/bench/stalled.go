package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

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

const (
	// stalledBuffer is what a client's kernel takes for one that does not read.
	stalledBuffer = 4 << 10
	// stalledSegment is how large the segments are that it takes. The kernel at the server's end, too, keeps less for
	// a peer to whom little is under way; with loopback's own size it is megabytes.
	stalledSegment = 1 << 10
)

// stalledDialer makes the kernel take little that is not read.
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

// dialStalled opens a connection with n watches of which nothing but the first one's beginning is read.
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
