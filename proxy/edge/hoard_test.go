package edge

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
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

// TestHTTP2UpgradesUnread: what nobody reads is held against the window of the connection
// once there is much of it everywhere, and what was read has no memory.
func TestHTTP2UpgradesUnread(t *testing.T) {
	started, release := make(chan struct{}, 10), make(chan struct{})
	ts, done := startUpgrades(t, func(nc net.Conn) {
		started <- struct{}{}
		<-release
		_, _ = io.ReadFull(nc, make([]byte, uploadBuffer-1))
		b := nc.(*upgraded2).st.body
		b.mu.Lock()
		room := cap(b.buf)
		b.mu.Unlock()
		if room > smallBuffer {
			t.Errorf("room for %d bytes is kept", room)
		}
		_, _ = io.Copy(io.Discard, nc)
	})
	const free = uploadBuffer // for the first
	ts.buffers.unread.Store(unreadAllowed - free)
	c := ts.dialFrames()
	var tunnels []uint32
	for range 1 + uploadBuffers/uploadBuffer {
		id := c.tunnel("/")
		c.answer(id)
		receive(t, started, "start")
		c.write(id, strings.Repeat("x", uploadBuffer), false)
		tunnels = append(tunnels, id)
	}
	given := int64(0)
	if err := c.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	note := func(frame http2.Frame) {
		if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID == 0 {
			given += int64(update.Increment)
		}
	}
	c.until(func(frame http2.Frame) bool {
		note(frame)
		ping, ok := frame.(*http2.PingFrame)
		return ok && ping.IsAck()
	})
	if given > free {
		t.Errorf("the window of the connection was given back %d of %d bytes that nobody reads", given, len(tunnels)*uploadBuffer)
	}
	close(release)
	for given < uploadBuffers {
		c.until(func(frame http2.Frame) bool {
			note(frame)
			return given >= uploadBuffers
		})
	}
	for _, id := range tunnels {
		c.write(id, "", true)
	}
	for range tunnels {
		receive(t, done, "Done")
	}
	if n := ts.buffers.unread.Load(); n != unreadAllowed-free {
		t.Errorf("%d bytes count as unread more than before", n-(unreadAllowed-free))
	}
}
