package h2

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2StrangersHoard: where much is held for clients that do not read, and of whom
// nobody knows whose they are, one more does not stay. A user's does, and no more is kept for it
// than is for data.
func TestHTTP2StrangersHoard(t *testing.T) {
	const pings = maxCredit - 100
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo("user")
		return edgetest.Text("x")
	})
	dial := ts.ServeNarrow()
	const before = edge.LargeAllowed + 1
	ts.Buffers.Hold(ts.Buffers.Anonymous(), before)
	defer ts.Buffers.Hold(ts.Buffers.Anonymous(), -before)
	flood := func(c *edgetest.FrameConn) {
		c.Flood(pings, func(i int) error {
			var data [8]byte
			binary.BigEndian.PutUint64(data[:], uint64(i)+1)
			return c.WritePing(false, data)
		})
	}

	user := dial()
	user.Until(edgetest.IsEnd(user.Request("GET", "/", false)))
	go flood(user)
	ts.Holds(before+2*edge.SmallBuffer, before+8*edge.SmallBuffer)
	if runtime.GOOS == "linux" { // elsewhere nobody knows who reads
		stranger := dial()
		_ = stranger.WritePing(false, [8]byte{})
		stranger.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // or it may not be counted yet
		go flood(stranger)
		for end := time.Now().Add(edgetest.Timeout); ts.Gauge("kubeweir_connections", "sidecar", "h2") != 1; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the stranger is still there")
			}
		}
	}
	user.Until(func(frame http2.Frame) bool {
		ping, ok := frame.(*http2.PingFrame)
		return ok && binary.BigEndian.Uint64(ping.Data[:]) == pings
	})
}
