package edge

import (
	"context"
	"io"
	"testing"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
)

// TestHTTP2Goodbye: a client that breaks the rules gets no more of its answers, however
// open its windows are and however fast it reads.
func TestHTTP2Goodbye(t *testing.T) {
	piece := make([]byte, 256<<10)
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: -1, BodyTo: writerTo(func(w io.Writer) (int64, error) {
			for {
				if _, err := w.Write(piece); err != nil {
					return 0, err
				}
			}
		})}
	})
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = c.WriteWindowUpdate(0, 1<<30)
	for range 4 {
		c.request("GET", "/", false)
	}
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameData })
	if err := c.WriteRawFrame(http2.FrameData, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameGoAway })
	for got := 0; ; {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		if got += int(frame.Header().Length); got > 64<<20 {
			t.Fatalf("%d bytes came behind GOAWAY", got)
		}
	}
}
