package h2

import (
	"context"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestHTTP2StepsIn: who waits for something holds up no other request of its connection, and
// who is slow without waiting does so for some milliseconds, however quick all were before.
func TestHTTP2StepsIn(t *testing.T) {
	var slow chan struct{}
	edgetest.InPipes(t, func(ctx context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/waits":
			<-ctx.Done()
		case "/slow":
			<-slow
		}
		return edgetest.Text("x")
	}, func(t *testing.T, dial func() *edgetest.FrameConn) {
		c := dial()
		slow = make(chan struct{}) // of the bubble
		request := func(path string) (took time.Duration) {
			began := time.Now()
			c.Until(edgetest.IsEnd(c.Request("GET", path, false)))
			return time.Since(began)
		}
		request("/")
		waits := c.Request("GET", "/waits", false)
		if took := request("/"); took > 0 {
			t.Errorf("an answer behind one that waits took %v", took)
		}
		_ = c.WriteRSTStream(waits, 8)
		const most = 2 * takeOverAfter << maxBackoff
		for range 100 {
			request("/")
			time.Sleep(takeOverAfter / 3)
		}
		c.Request("GET", "/slow", false)
		if took := request("/"); took == 0 || took > most {
			t.Errorf("an answer behind a slow one took %v, want %v at most", took, most)
		}
		if took := request("/"); took > 0 { // by a goroutine of its own
			t.Errorf("the next took %v", took)
		}
		close(slow)
	})
}
