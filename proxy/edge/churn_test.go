package edge_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestAccountsChurn: whatever users do at once, on connections of several, nothing counts for
// any of them when they have gone.
func TestAccountsChurn(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path != "/early" {
			r.AttributeTo(r.Header.Get("User"))
		}
		switch {
		case r.Path == "/panic":
			panic("x")
		case r.Upgrade != "":
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Upgrade: func(nc net.Conn) {
				_, _ = io.CopyN(nc, nc, 20_000)
				if r.Path == "/tunnel-panic" {
					panic("y")
				}
			}}
		case r.Path == "/watch":
			return &api.Response{Status: 200, Stream: edgetest.LateStream(func(w api.StreamWriter) {
				_ = w.WriteFrames(edgetest.Frames("event"))
				w.Close()
			})}
		case r.Path == "/read" && r.Body != nil:
			_, _ = io.CopyN(io.Discard, r.Body, 10_000)
		}
		return edgetest.Text("x")
	})
	paths := []string{"/read", "/panic", "/watch", "/early", "/drop"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 6 {
				conn := ts.Dial()
				c := edgetest.NewFrameConn(t, conn.Conn)
				c.Tolerant()
				for range 20 {
					user := fmt.Sprint("user", rand.IntN(4))
					var id uint32
					if rand.IntN(3) == 0 {
						id = c.Tunnel([]string{"/tunnel", "/tunnel-panic"}[rand.IntN(2)], "user", user)
					} else {
						id = c.Request("POST", paths[rand.IntN(len(paths))], true, "user", user)
					}
					for range rand.IntN(4) {
						_ = c.WriteData(id, false, make([]byte, 9_000))
					}
					switch rand.IntN(3) {
					case 0:
						_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
					case 1:
						_ = c.WriteData(id, true, nil)
					}
				}
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	ts.HoldsNothing()
	left := func() int { return len(ts.Buffers.HeldByUser()) }
	for end := time.Now().Add(edgetest.Timeout); left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d accounts are left", left())
		}
	}
	if _, unread, _ := ts.Buffers.Usage(); unread != 0 || ts.Buffers.HeldByNobody() != 0 {
		t.Errorf("%d bytes count as unread, %d for nobody", unread, ts.Buffers.HeldByNobody())
	}
}
