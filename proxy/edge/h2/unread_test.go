package h2

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2ResponsesUnread: answers to clients that open their windows, and read nothing, do not wait in
// any number either.
func TestHTTP2ResponsesUnread(t *testing.T) {
	const size, most = 2 * edge.SmallBuffer, edge.WaitingAllowed / edge.WaitingStream
	list := make([]byte, size)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo("a")
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(list), Length: size, Ready: true}
	})
	dial := ts.ServeNarrow()
	before := runtime.NumGoroutine()
	for requested := 0; requested < most; requested += defaults.MaxStreams {
		c := dial()
		_ = c.WriteWindowUpdate(0, 1<<30)
		for range defaults.MaxStreams {
			c.Request("GET", "/", false)
		}
	}
	for end := time.Now().Add(edgetest.Timeout); ts.Gauge("kubeweir_unread_streams_reset_total") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines wait, and %d bytes count as waiting", runtime.NumGoroutine()-before, ts.Waiting())
		}
	}
}
