package h2

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2Hoard: answers that wait for closed windows do not use up what all
// connections share, so that watches would be ended.
func TestHTTP2Hoard(t *testing.T) {
	const conns = edge.BufferBudget/(defaults.MaxStreams*edge.SmallBuffer) + 2
	ts := edgetest.Start(t, edgetest.SlowList(2*edge.SmallBuffer))
	var wg sync.WaitGroup
	for range conns {
		conn := ts.Dial()
		defer func() { _ = conn.Close() }()
		c := edgetest.NewFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		wg.Go(func() {
			for range defaults.MaxStreams {
				c.Request("GET", "/", false)
			}
			for heads := 0; heads < defaults.MaxStreams; {
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
	if ts.Buffers.OverShare(ts.Buffers.Anonymous(), 0) {
		t.Errorf("%d bytes are held for %d connections", ts.Held(), conns)
	}
}

// TestHTTP2UnreadUploads: what nobody has read of uploads and of headers counts as held.
func TestHTTP2UnreadUploads(t *testing.T) {
	const size = 50_000
	release := make(chan struct{})
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		<-release
		return &api.Response{Status: 200}
	})
	conn := ts.DialH2()
	c := edgetest.NewFrameConn(t, conn)
	id := c.Request("POST", "/", true)
	for range size / 10_000 {
		_ = c.WriteData(id, false, make([]byte, 10_000))
	}
	ts.Holds(size, uploadBuffer)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 2, BlockFragment: make([]byte, 10_000)})
	ts.Holds(size+10_000, uploadBuffer+3*edge.SmallBuffer)
	_ = conn.Close()
	close(release)
	ts.HoldsNothing()
}

// TestHTTP2CrowdedUploads: where much is held already uploads go on with small windows, and
// leave nothing behind.
func TestHTTP2CrowdedUploads(t *testing.T) {
	const size, uploads = 1 << 20, 4
	ts := edgetest.Start(t, func(_ context.Context, req *api.Request) *api.Response {
		n, err := io.Copy(io.Discard, req.Body)
		if err != nil {
			t.Error(err)
		}
		return &api.Response{Status: 200, Body: strconv.AppendInt(nil, n, 10)}
	})
	ts.Buffers.Hold(&edge.Account{}, edge.LargeAllowed+1)
	defer ts.Buffers.Hold(&edge.Account{}, -edge.LargeAllowed-1)
	client := ts.Client(true)
	var wg sync.WaitGroup
	for range uploads {
		wg.Go(func() {
			resp, err := client.Post("https://"+ts.Secure, "text/plain", io.MultiReader(bytes.NewReader(make([]byte, size))))
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

	c := ts.DialFrames()
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
	ts, done := edgetest.StartUpgrades(t, func(nc net.Conn) {
		started <- struct{}{}
		<-release
		_, _ = io.ReadFull(nc, make([]byte, uploadBuffer-1))
		b := nc.(*upgradedStream).st.body
		b.mu.Lock()
		room := cap(b.buf)
		b.mu.Unlock()
		if room > edge.SmallBuffer {
			t.Errorf("room for %d bytes is kept", room)
		}
		_, _ = io.Copy(io.Discard, nc)
	})
	const free = uploadBuffer // for the first
	const spent = edge.UnreadAllowed - free - free/edge.UserShare - 1
	ts.Buffers.RemoveUnread(&edge.Account{}, -spent)
	defer ts.Buffers.RemoveUnread(&edge.Account{}, spent)
	c := ts.DialFrames()
	given := int64(0)
	note := func(frame http2.Frame) {
		if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID == 0 {
			given += int64(update.Increment)
		}
	}
	var tunnels []uint32
	for range 1 + uploadBuffers/uploadBuffer {
		id := c.Tunnel("/")
		c.Until(func(frame http2.Frame) bool {
			if len(tunnels) > 0 { // nothing was sent before
				note(frame)
			}
			head, ok := frame.(*http2.MetaHeadersFrame)
			return ok && head.StreamID == id
		})
		edgetest.Receive(t, started, "start")
		c.Write(id, strings.Repeat("x", uploadBuffer), false)
		tunnels = append(tunnels, id)
	}
	if err := c.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	c.Until(func(frame http2.Frame) bool {
		note(frame)
		ping, ok := frame.(*http2.PingFrame)
		return ok && ping.IsAck()
	})
	if given > free {
		t.Errorf("the window of the connection was given back %d of %d bytes that nobody reads", given, len(tunnels)*uploadBuffer)
	}
	close(release)
	for given < uploadBuffers {
		c.Until(func(frame http2.Frame) bool {
			note(frame)
			return given >= uploadBuffers
		})
	}
	for _, id := range tunnels {
		c.Write(id, "", true)
	}
	for range tunnels {
		edgetest.Receive(t, done, "Done")
	}
	if n := ts.Unread(); n != spent {
		t.Errorf("%d bytes count as unread more than before", n-spent)
	}
}

// TestHTTP2Leaks: whatever a client leaves behind, nothing is held when it has gone.
func TestHTTP2Leaks(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/body":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/panic":
			panic("x")
		case "/big":
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, 4<<20)), Length: 4 << 20, Ready: true}
		case "/panicbody":
			return &api.Response{Status: 200, Length: 1 << 20, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
				_, _ = w.Write(make([]byte, 50000))
				panic("y")
			})}
		}
		return edgetest.Text("x")
	})
	for n := range 10 {
		conn := ts.DialH2()
		c := edgetest.NewFrameConn(t, conn)
		c.Tolerant()
		for _, path := range []string{"/body", "/panic", "/big", "/panicbody", "/x"} {
			for k := range 4 {
				id := c.Request("POST", path, k%2 == 0)
				if k < 2 {
					_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
				}
			}
		}
		if n%2 == 0 {
			_ = c.WriteWindowUpdate(0, 1<<31-1)
		}
		_ = conn.Close()
	}
	ts.HoldsNothing()
	for end := time.Now().Add(edgetest.Timeout); ts.Gauge("kubeweir_connections", "secure", "h2") != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("connections are left")
		}
	}
}

// TestHTTP2WindowsClosed: answers to clients that open no window do not wait in any number,
// whoever has asked, nor with large headers of a few bytes each. Others wait beside.
func TestHTTP2WindowsClosed(t *testing.T) {
	const crumb = 3900
	for name, tc := range map[string]struct {
		header []string
		user   string
		most   int64
	}{
		"strangers":             {nil, "", edge.AnonymousAllowed},
		"strangers with a head": {slices.Repeat([]string{"cookie", strings.Repeat("x", crumb)}, 15), "", edge.AnonymousAllowed},
		"a user with a head":    {slices.Repeat([]string{"cookie", strings.Repeat("x", crumb)}, 15), "a", edge.WaitingAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
				if user := r.Header.Get("User"); user != "" {
					r.AttributeTo(user)
				}
				return edgetest.Text(r.Path)
			})
			closed := func(user string, n int) *edgetest.FrameConn {
				c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				for range n {
					c.Request("GET", "/", false, append([]string{"user", user}, tc.header...)...)
				}
				return c
			}
			weight := int64(edge.WaitingStream)
			if tc.header != nil {
				weight += 15 * crumb
			}
			reset, requested := 0, int64(0)
			for requested*weight < tc.most+tc.most/4 {
				c := closed(tc.user, defaults.MaxStreams)
				requested += defaults.MaxStreams
				for heads := 0; heads < defaults.MaxStreams; {
					frame, err := c.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					switch f := frame.(type) {
					case *http2.MetaHeadersFrame:
						heads++
					case *http2.RSTStreamFrame:
						if reset++; f.ErrCode != http2.ErrCodeEnhanceYourCalm {
							t.Errorf("reset with %v", f.ErrCode)
						}
					}
				}
			}
			if n := ts.Waiting(); n > tc.most || n < tc.most/2 || reset == 0 {
				t.Errorf("%d bytes wait, %d streams were reset", n, reset)
			}
			other := closed("other", 1)
			other.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
			_ = other.WriteWindowUpdate(1, 100)
			other.Expect(1, "/")
		})
	}
}
