package edge

import (
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// TestHTTP2Hoard: answers that wait for closed windows do not use up what all
// connections share, so that watches would be ended.
func TestHTTP2Hoard(t *testing.T) {
	const conns = bufferBudget/(DefaultMaxStreams*smallBuffer) + 2
	ts := startServer(t, slowList(2*smallBuffer))
	var wg sync.WaitGroup
	for range conns {
		conn := ts.dial()
		defer func() { _ = conn.Close() }()
		c := newFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		wg.Go(func() {
			for range DefaultMaxStreams {
				c.request("GET", "/", false)
			}
			for heads := 0; heads < DefaultMaxStreams; {
				frame, err := c.ReadFrame()
				if err != nil {
					t.Error(err)
					return
				}
				if frame.Header().Type == http2.FrameHeaders {
					heads++
				}
			}
		})
	}
	wg.Wait()
	if ts.buffers.short() {
		t.Errorf("%d bytes are held for %d connections", ts.buffers.held.Load(), conns)
	}
}
