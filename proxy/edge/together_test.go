package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// holdingConn keeps what is written until it is told.
type holdingConn struct {
	net.Conn
	hold bool
	held bytes.Buffer
}

func (c *holdingConn) Write(p []byte) (int, error) {
	if c.hold {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

// release writes it all at once.
func (c *holdingConn) release() error {
	c.hold = false
	_, err := c.held.WriteTo(c.Conn)
	return err
}

// TestHTTP2RecordsTogether: requests that come together, in a TLS record each, are answered
// together, but none waits for one that takes long.
func TestHTTP2RecordsTogether(t *testing.T) {
	slow, conns := make(chan struct{}), make(chan *http2Conn, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/first" {
			conns <- r.Attributor.(*stream2).h
		}
		if r.Path == "/slow" {
			<-slow
		}
		return text("x")
	})
	raw, err := net.Dial("tcp", ts.secure)
	if err != nil {
		t.Fatal(err)
	}
	under := &holdingConn{Conn: raw}
	conn := tls.Client(under, &tls.Config{RootCAs: ts.roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	defer conn.Close()
	c := newFrameConn(t, conn)
	_ = c.WritePing(false, [8]byte{})
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing })
	c.until(isEnd(c.request("GET", "/first", false)))

	// The answers are one record's as long as the goroutine that reads is not taken for a slow
	// one, as it may be on a busy machine: nobody looks at first.
	reads := receive(t, conns, "connection")
	for reads.watched.Load() {
		time.Sleep(stepIn)
	}
	reads.watched.Store(true)

	ask := func(paths ...string) (ids []uint32) {
		t.Helper()
		under.hold = true
		for _, path := range paths {
			ids = append(ids, c.request("GET", path, false))
		}
		if err := under.release(); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	ids := ask("/", "/", "/")
	record := make([]byte, recordSize)
	n, err := conn.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	one := &frameConn{Framer: http2.NewFramer(nil, bytes.NewReader(record[:n])), t: t}
	for _, id := range ids {
		one.until(isEnd(id))
	}

	reads.watched.Store(false)
	ids = ask("/", "/slow")
	c.until(isEnd(ids[0]))
	close(slow)
	c.until(isEnd(ids[1]))
}
