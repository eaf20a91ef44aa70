package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
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
	slow, conns := make(chan struct{}), make(chan *conn, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/first" {
			conns <- r.Attributor.(*stream).h
		}
		if r.Path == "/slow" {
			<-slow
		}
		return edgetest.Text("x")
	})
	raw, err := net.Dial("tcp", ts.Secure)
	if err != nil {
		t.Fatal(err)
	}
	under := &holdingConn{Conn: raw}
	conn := tls.Client(under, &tls.Config{RootCAs: ts.Roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	defer conn.Close()
	c := edgetest.NewFrameConn(t, conn)
	_ = c.WritePing(false, [8]byte{})
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing })
	c.Until(edgetest.IsEnd(c.Request("GET", "/first", false)))

	// The answers are one record's as long as the goroutine that reads is not taken for a slow
	// one, as it may be on a busy machine: nobody looks at first.
	reads := edgetest.Receive(t, conns, "connection")
	for reads.lease.watched.Load() {
		time.Sleep(takeOverAfter)
	}
	reads.lease.watched.Store(true)

	request := func(paths ...string) (ids []uint32) {
		t.Helper()
		under.hold = true
		for _, path := range paths {
			ids = append(ids, c.Request("GET", path, false))
		}
		if err := under.release(); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	ids := request("/", "/", "/")
	record := make([]byte, edge.RecordSize)
	n, err := conn.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	one := &edgetest.FrameConn{Framer: http2.NewFramer(nil, bytes.NewReader(record[:n])), T: t}
	for _, id := range ids {
		one.Until(edgetest.IsEnd(id))
	}

	reads.lease.watched.Store(false)
	ids = request("/", "/slow")
	c.Until(edgetest.IsEnd(ids[0]))
	close(slow)
	c.Until(edgetest.IsEnd(ids[1]))
}
