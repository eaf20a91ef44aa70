package h1

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2HoarderPays: who leaves more unread than a share of the memory, over however many
// connections, has streams of their own reset. Another's watch that is not read goes on.
func TestHTTP2HoarderPays(t *testing.T) {
	const uploadBuffer = 256 << 10 // that of HTTP/2
	const conns, streams = 64, (1 << 20) / uploadBuffer
	writers, entered, release := make(chan api.StreamWriter, 1), make(chan struct{}), make(chan struct{})
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo(r.Header.Get("User"))
		if r.Path == "/watch" {
			return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { writers <- w }}}
		}
		entered <- struct{}{}
		<-release
		return edgetest.Text("")
	})
	c := ts.Dial()
	c.Send("GET /watch HTTP/1.1\r\nHost: x\r\nUser: modest\r\n\r\n")
	watch := edgetest.Receive(t, writers, "watch").(*stream)
	for runtime.GOOS == "linux" && watch.c.Out.TakesMore() {
		if err := watch.WriteFrames([][]byte{make([]byte, 4<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	var hoarders []*edgetest.FrameConn
	for range conns {
		conn := ts.Dial()
		defer func() { _ = conn.Close() }()
		c := edgetest.NewFrameConn(t, conn)
		c.ExpectUpdate(0) // the whole window, before much is held
		for range streams {
			c.Request("POST", "/", true, "user", "greedy")
			edgetest.Receive(t, entered, "request")
		}
		hoarders = append(hoarders, c)
	}
	var resets atomic.Int32
	var hoarder sync.WaitGroup
	for _, c := range hoarders {
		hoarder.Go(func() {
			for id := uint32(1); id < c.NextID; id += 2 {
				c.Write(id, strings.Repeat("x", uploadBuffer), false)
			}
			_ = c.WritePing(false, [8]byte{})
			c.Until(func(frame http2.Frame) bool {
				if r, ok := frame.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeEnhanceYourCalm {
					resets.Add(1)
				}
				return frame.Header().Type == http2.FramePing
			})
		})
	}
	hoarder.Wait()
	if held := ts.Held(); held > edge.BufferBudget*3/4+conns*uploadBuffer/4 || resets.Load() == 0 {
		t.Errorf("%d bytes are held, %d streams were reset", held, resets.Load())
	}
	if got := ts.Gauge("kubeweir_unread_streams_reset_total"); got != float64(resets.Load()) {
		t.Errorf("%v resets are counted of %d", got, resets.Load())
	}
	if err := watch.WriteFrames(edgetest.Frames("event")); err != nil {
		t.Errorf("another's watch: %v", err)
	}
	close(release)
}
