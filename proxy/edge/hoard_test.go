package edge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// TestHTTP2Hoard: answers that wait for closed windows do not use up what all
// connections share, so that watches would be ended.
func TestHTTP2Hoard(t *testing.T) {
	const conns = bufferBudget/(defaults.MaxStreams*smallBuffer) + 2
	ts := startServer(t, slowList(2*smallBuffer))
	var wg sync.WaitGroup
	for range conns {
		conn := ts.dial()
		defer func() { _ = conn.Close() }()
		c := newFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		wg.Go(func() {
			for range defaults.MaxStreams {
				c.request("GET", "/", false)
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
	if ts.buffers.over(&ts.buffers.accounts.nobody, 0) {
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
	const spent = unreadAllowed - free - free/userShare - 1
	ts.buffers.unread.Store(spent)
	defer ts.buffers.unread.Add(-spent)
	c := ts.dialFrames()
	given := int64(0)
	note := func(frame http2.Frame) {
		if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID == 0 {
			given += int64(update.Increment)
		}
	}
	var tunnels []uint32
	for range 1 + uploadBuffers/uploadBuffer {
		id := c.tunnel("/")
		c.until(func(frame http2.Frame) bool {
			if len(tunnels) > 0 { // nothing was sent before
				note(frame)
			}
			head, ok := frame.(*http2.MetaHeadersFrame)
			return ok && head.StreamID == id
		})
		receive(t, started, "start")
		c.write(id, strings.Repeat("x", uploadBuffer), false)
		tunnels = append(tunnels, id)
	}
	if err := c.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
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
	if n := ts.buffers.unread.Load(); n != spent {
		t.Errorf("%d bytes count as unread more than before", n-spent)
	}
}

// TestHTTP2HoarderPays: who leaves more unread than a share of the memory, over however many
// connections, has streams of their own reset. Another's watch that is not read goes on.
func TestHTTP2HoarderPays(t *testing.T) {
	const conns, streams = 64, uploadBuffers / uploadBuffer
	writers, entered, release := make(chan api.StreamWriter, 1), make(chan struct{}), make(chan struct{})
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo(r.Header.Get("User"))
		if r.Path == "/watch" {
			return &api.Response{Status: 200, Stream: &streamFunc{start: func(w api.StreamWriter) { writers <- w }}}
		}
		entered <- struct{}{}
		<-release
		return text("")
	})
	c := ts.dial()
	c.send("GET /watch HTTP/1.1\r\nHost: x\r\nUser: modest\r\n\r\n")
	watch := receive(t, writers, "watch").(*stream1)
	for runtime.GOOS == "linux" && watch.c.out.writable() {
		if err := watch.WriteFrames([][]byte{make([]byte, 4<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	var hoarders []*frameConn
	for range conns {
		conn := ts.dial()
		defer func() { _ = conn.Close() }()
		c := newFrameConn(t, conn)
		c.expectUpdate(0) // the whole window, before much is held
		for range streams {
			c.request("POST", "/", true, "user", "greedy")
			receive(t, entered, "request")
		}
		hoarders = append(hoarders, c)
	}
	var resets atomic.Int32
	var hoarder sync.WaitGroup
	for _, c := range hoarders {
		hoarder.Go(func() {
			for id := uint32(1); id < c.nextID; id += 2 {
				c.write(id, strings.Repeat("x", uploadBuffer), false)
			}
			_ = c.WritePing(false, [8]byte{})
			c.until(func(frame http2.Frame) bool {
				if r, ok := frame.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeEnhanceYourCalm {
					resets.Add(1)
				}
				return frame.Header().Type == http2.FramePing
			})
		})
	}
	hoarder.Wait()
	if held := ts.buffers.held.Load(); held > bufferBudget*3/4+conns*uploadBuffer/4 || resets.Load() == 0 {
		t.Errorf("%d bytes are held, %d streams were reset", held, resets.Load())
	}
	if got := ts.gauge("kubeweir_unread_streams_reset_total"); got != float64(resets.Load()) {
		t.Errorf("%v resets are counted of %d", got, resets.Load())
	}
	if err := watch.WriteFrames(frames("event")); err != nil {
		t.Errorf("another's watch: %v", err)
	}
	close(release)
}

// TestAccounts: what is unread counts for the user whose stream it is, also on a connection
// of several, and nothing is left when they have gone.
func TestAccounts(t *testing.T) {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo(r.Header.Get("User"))
		if r.Path == "/wait" {
			entered <- struct{}{}
			<-release
		}
		return text("")
	})
	holding := func() string {
		all := &ts.buffers.accounts
		all.mu.Lock()
		defer all.mu.Unlock()
		unread := map[string]bool{}
		for user, a := range all.byUser {
			unread[user] = a.held.Load() >= uploadBuffer/2
		}
		return fmt.Sprint(unread)
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(patience); holding() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("held: %s, want %s", holding(), want)
			}
		}
	}
	c := ts.dial()
	for _, user := range []string{"a", "b"} {
		c.send("GET / HTTP/1.1\r\nHost: x\r\nUser: %s\r\n\r\n", user)
		c.response("GET")
	}
	await("map[b:false]")
	_ = c.Close()
	await("map[]")
	shared := ts.dialFrames()
	for _, user := range []string{"a", "b", "c"} {
		id := shared.request("POST", "/wait", true, "user", user)
		receive(t, entered, "request")
		if user != "c" {
			shared.write(id, strings.Repeat("x", uploadBuffer), false)
		}
	}
	await("map[a:true b:true c:false]")
	close(release)
	await("map[a:false]")                                // whose the connection is
	_ = shared.WriteRawFrame(http2.FrameData, 0, 0, nil) // which ends the connection
	await("map[]")
}

// TestHTTP2Leaks: whatever a client leaves behind, nothing is held when it has gone.
func TestHTTP2Leaks(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/body":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/panic":
			panic("x")
		case "/big":
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, 4<<20)), Length: 4 << 20, Ready: true}
		case "/panicbody":
			return &api.Response{Status: 200, Length: 1 << 20, BodyTo: writerTo(func(w io.Writer) (int64, error) {
				_, _ = w.Write(make([]byte, 50000))
				panic("y")
			})}
		}
		return text("x")
	})
	for n := range 10 {
		conn := ts.dialH2()
		c := newFrameConn(t, conn)
		c.tolerant()
		for _, path := range []string{"/body", "/panic", "/big", "/panicbody", "/x"} {
			for k := range 4 {
				id := c.request("POST", path, k%2 == 0)
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
	ts.holdsNothing()
	for end := time.Now().Add(patience); ts.gauge("kubeweir_connections", "secure", "h2") != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("connections are left")
		}
	}
}

// holdsNothing waits until no buffer is in use, and nothing waits.
func (ts *testServer) holdsNothing() {
	ts.t.Helper()
	b := &ts.buffers
	for end := time.Now().Add(patience); b.held.Load() != 0 || b.unread.Load() != 0 || b.waiting.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.t.Fatalf("%d bytes are held, %d unread, %d wait", b.held.Load(), b.unread.Load(), b.waiting.Load())
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
		"strangers":             {nil, "", strangersAllowed},
		"strangers with a head": {slices.Repeat([]string{"cookie", strings.Repeat("x", crumb)}, 15), "", strangersAllowed},
		"a user with a head":    {slices.Repeat([]string{"cookie", strings.Repeat("x", crumb)}, 15), "a", waitingAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
				if user := r.Header.Get("User"); user != "" {
					r.AttributeTo(user)
				}
				return text(r.Path)
			})
			closed := func(user string, n int) *frameConn {
				c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				for range n {
					c.request("GET", "/", false, append([]string{"user", user}, tc.header...)...)
				}
				return c
			}
			weight := int64(waitingStream)
			if tc.header != nil {
				weight += 15 * crumb
			}
			reset, asked := 0, int64(0)
			for asked*weight < tc.most+tc.most/4 {
				c := closed(tc.user, defaults.MaxStreams)
				asked += defaults.MaxStreams
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
			if n := ts.buffers.waiting.Load(); n > tc.most || n < tc.most/2 || reset == 0 {
				t.Errorf("%d bytes wait, %d streams were reset", n, reset)
			}
			other := closed("other", 1)
			other.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
			_ = other.WriteWindowUpdate(1, 100)
			other.expect(1, "/")
		})
	}
}
