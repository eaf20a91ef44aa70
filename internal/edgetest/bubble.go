//go:build unix

package edgetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// pipes is a listener whose connections are unbuffered pipes, for a bubble.
type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	if nc, ok := <-p.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) Close() error { close(p.conns); return nil }

// InPipes runs f as the client of a server. Both use the clock of a bubble.
func InPipes(t *testing.T, h HandlerFunc, f func(t *testing.T, dial func() *FrameConn)) {
	bubble.Test(t, func(t *testing.T) {
		s, err := NewServer(edge.Options{Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := &pipes{conns: make(chan net.Conn)}
		if err := s.Serve(ln, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		f(t, func() *FrameConn {
			ln.conns <- far
			c := NewFrameConn(t, near)
			_ = near.SetDeadline(time.Time{})
			return c
		})
		_ = near.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// inMemory is a listener whose connections are in memory and buffered. Their timeouts are the
// errors that sockets return.
type inMemory struct{ *fasthttputil.InmemoryListener }

func (l inMemory) Accept() (net.Conn, error) {
	nc, err := l.InmemoryListener.Accept()
	return inMemoryConn{nc}, err
}

type inMemoryConn struct{ net.Conn }

func (c inMemoryConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, timeoutOf(err)
}

func (c inMemoryConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, timeoutOf(err)
}

func timeoutOf(err error) error {
	if errors.Is(err, fasthttputil.ErrTimeout) {
		return os.ErrDeadlineExceeded // a net.Error
	}
	return err
}

// InBubble runs f as the client of a server with in-memory connections. Both use the clock of a
// bubble.
func InBubble(t *testing.T, h HandlerFunc, f func(t *testing.T, dial func() *FrameConn, conn func() net.Conn)) {
	bubble.Test(t, func(t *testing.T) {
		s, err := NewServer(edge.Options{Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := fasthttputil.NewInmemoryListener()
		if err := s.Serve(inMemory{ln}, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		var last net.Conn
		f(t, func() *FrameConn {
			if last, err = ln.Dial(); err != nil {
				t.Fatal(err)
			}
			c := NewFrameConn(t, last)
			_ = last.SetDeadline(time.Time{})
			return c
		}, func() net.Conn { return last })
		_ = last.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// ServeInBubble starts a server within a bubble, whose connections are in memory. dial opens one:
// with TLS for "h2" and "http/1.1", without for "", and to the TLS listener without a handshake for
// "none".
func ServeInBubble(t *testing.T, h HandlerFunc, change ...func(*edge.Options)) (ts *Server, dial func(proto string) net.Conn) {
	t.Helper()
	ts = &Server{t: t, Log: &LogBuffer{}, Roots: x509.NewCertPool()}
	o := edge.Options{Handler: h, Logger: slog.New(slog.NewTextHandler(ts.Log, nil))}
	for _, f := range change {
		f(&o)
	}
	var err error
	if ts.Server, err = NewServer(o); err != nil {
		t.Fatal(err)
	}
	ts.Roots.AppendCertsFromPEM(CertificatePEM())
	plain, secure := fasthttputil.NewInmemoryListener(), fasthttputil.NewInmemoryListener()
	counted := &CountingListener{Listener: inMemory{secure}}
	ts.Writes = &counted.Writes
	if err := errors.Join(ts.Serve(inMemory{plain}, api.ListenerSidecar), ts.Serve(counted, api.ListenerSecure)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after those of the connections
		if err := ts.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ts, func(proto string) net.Conn {
		t.Helper()
		ln := secure
		if proto == "" {
			ln = plain
		}
		nc, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if proto != "" && proto != "none" {
			secured := tls.Client(nc, &tls.Config{RootCAs: ts.Roots, ServerName: "127.0.0.1", NextProtos: []string{proto}, MinVersion: tls.VersionTLS12})
			if err := secured.Handshake(); err != nil {
				t.Fatal(err)
			}
			nc = secured
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
}
