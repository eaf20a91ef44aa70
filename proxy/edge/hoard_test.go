package edge

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
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

// TestHTTP2UnreadUploads: what nobody has read of uploads and of headers counts as held.
func TestHTTP2UnreadUploads(t *testing.T) {
	const size = 50_000
	release := make(chan struct{})
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		<-release
		return &api.Response{Status: 200}
	})
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	id := c.request("POST", "/", true)
	for range size / 10_000 {
		_ = c.WriteData(id, false, make([]byte, 10_000))
	}
	ts.holds(size, uploadBuffer)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 2, BlockFragment: make([]byte, 10_000)})
	ts.holds(size+10_000, uploadBuffer+3*smallBuffer)
	_ = conn.Close()
	close(release)
	ts.holdsNothing()
}

// holds waits until so much is held.
func (ts *testServer) holds(least, most int64) {
	ts.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		held := ts.buffers.held.Load()
		if held >= least && held <= most {
			return
		}
		if time.Now().After(end) {
			ts.t.Fatalf("%d bytes are held, want %d to %d", held, least, most)
		}
	}
}

// TestHTTP2CrowdedUploads: where much is held already uploads go on with small windows, and
// leave nothing behind.
func TestHTTP2CrowdedUploads(t *testing.T) {
	const size, uploads = 1 << 20, 4
	ts := startServer(t, func(_ context.Context, req *api.Request) *api.Response {
		n, err := io.Copy(io.Discard, req.Body)
		if err != nil {
			t.Error(err)
		}
		return &api.Response{Status: 200, Body: strconv.AppendInt(nil, n, 10)}
	})
	ts.buffers.held.Add(largeAllowed + 1)
	defer ts.buffers.held.Add(-largeAllowed - 1)
	client := ts.client(true)
	var wg sync.WaitGroup
	for range uploads {
		wg.Go(func() {
			resp, err := client.Post("https://"+ts.secure, "text/plain", io.MultiReader(bytes.NewReader(make([]byte, size))))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(body) != strconv.Itoa(size) {
				t.Errorf("%d %s %v", resp.StatusCode, body, err)
			}
		})
	}
	wg.Wait()

	c := ts.dialFrames()
	_ = c.WritePing(false, [8]byte{})
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if update, ok := frame.(*http2.WindowUpdateFrame); ok {
			t.Errorf("a window of %d bytes more", update.Increment)
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
			return
		}
	}
}
