package security

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLateDataIsNotServedAsNew checks that data which arrives late, over a slow but working link,
// is served with a staleness mark (D5).
func TestLateDataIsNotServedAsNew(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	link := newSlowLink(t)
	g := startGatewayAt(t, link.url)
	marked := func(want bool) func() error {
		return func() error {
			a := do(ctx, t, g.URL(), kube.AdminToken(), http.MethodGet, "/api/v1/namespaces?resourceVersion=0", "")
			is := strings.HasPrefix(a.header.Get("Warning"), "110 ") && a.header.Get("Age") != ""
			if a.status != http.StatusOK || is != want {
				return fmt.Errorf("delay %v: %d %v", time.Duration(link.delay.Load()), a.status, a.header)
			}
			return nil
		}
	}
	eventually(ctx, t, marked(false))
	link.delay.Store(int64(3 * time.Second))
	eventually(ctx, t, marked(true))
	link.delay.Store(0)
	eventually(ctx, t, marked(false))
}

// slowLink forwards connections to kube. It delays the data that kube sends.
type slowLink struct {
	url   string
	delay atomic.Int64 // nanoseconds
}

func newSlowLink(t *testing.T) *slowLink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &slowLink{url: "https://" + listener.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { l.carry(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
	})
	return l
}

// carry forwards one connection until either side closes it, or ctx ends.
func (l *slowLink) carry(ctx context.Context, client net.Conn) {
	server, err := net.Dial("tcp", strings.TrimPrefix(kube.URL(), "https://"))
	if err != nil {
		_ = client.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, client)
		_, _ = client.Close(), server.Close()
	})
	both.Go(func() {
		l.late(ctx, client, server)
		_, _ = client.Close(), server.Close()
	})
	both.Wait()
}

// late copies data in order, each piece after the delay.
func (l *slowLink) late(ctx context.Context, to io.Writer, from io.Reader) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 10_000)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			pieces <- piece{b[:n], time.Now().Add(time.Duration(l.delay.Load()))}
		}
	})
	for p := range pieces {
		select {
		case <-time.After(time.Until(p.due)):
		case <-ctx.Done():
		}
		if _, err := to.Write(p.bytes); err != nil {
			for range pieces { // until the other side is closed
			}
			return
		}
	}
}
