package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
)

// What honest clients do that looks like an attack, and what attacks are that look
// honest.

func (ts *testServer) dialH2() *tls.Conn {
	ts.t.Helper()
	conn, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestHTTP2SmallReads: a client that reads in small pieces, and says so with two window
// updates for each, as x/net's does, gets all of a list.
func TestHTTP2SmallReads(t *testing.T) {
	const size, piece = 48 << 20, 1 << 10
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, size)), Length: size, Ready: true}
	})
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	_ = conn.SetDeadline(time.Now().Add(6 * patience))
	id := c.request("GET", "/", false)
	var updates bytes.Buffer
	fr := http2.NewFramer(&updates, nil)
	for got := 0; got < size; {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			for left := len(f.Data()); left > 0; left -= piece {
				_ = fr.WriteWindowUpdate(0, uint32(min(left, piece)))
				_ = fr.WriteWindowUpdate(id, uint32(min(left, piece)))
			}
			got += len(f.Data())
			if _, err := updates.WriteTo(conn); err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		case *http2.GoAwayFrame:
			t.Fatalf("after %d bytes: %v", got, f)
		}
	}
}

// TestHTTP2UnreadEvents: events for a client that does not read hold up no others, and
// its watch ends when the write timeout has passed.
func TestHTTP2UnreadEvents(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			writers, stopped := make(chan api.StreamWriter, 1), make(chan struct{}, 2)
			ts := startServer(t, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 200, Stream: &streamFunc{
					start: func(w api.StreamWriter) { writers <- w },
					stop:  func() { stopped <- struct{}{} },
				}}
			}, func(o *Options) { o.WriteTimeout = 2 * patience })
			watch := func() (api.SharedWriter, *frameConn) {
				var conn net.Conn
				if secure {
					conn = ts.dialH2()
				} else {
					conn = ts.dial()
				}
				c := newFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
				_ = c.WriteWindowUpdate(0, 1<<30)
				_ = c.WritePing(false, [8]byte{})
				c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // the windows are known
				c.request("GET", "/", false)
				return receive(t, writers, "watch").(api.SharedWriter), c
			}
			deaf, _ := watch()
			listening, c := watch()
			events := make(chan struct{}, 1)
			go func() {
				for {
					frame, err := c.ReadFrame()
					if err != nil {
						return
					}
					if data, ok := frame.(*http2.DataFrame); ok && len(data.Data()) > 0 {
						events <- struct{}{}
					}
				}
			}()
			flushes := make(chan struct{})
			piece := [][]byte{make([]byte, 15000)}
			full := 0
			for full < 3 {
				if deaf.QueueFrames(piece) {
					full = 0
				} else {
					full++
				}
				if !listening.QueueFrames([][]byte{[]byte("event")}) {
					t.Fatal("an event for a client that reads is not taken")
				}
				go func() { deaf.Flush(); listening.Flush(); flushes <- struct{}{} }()
				receive(t, flushes, "end of Flush")
				receive(t, events, "event")
			}
			if held := ts.buffers.held.Load(); held > 4*queueLimit {
				t.Errorf("%d bytes are held", held)
			}
			deaf.Abort()
			receive(t, stopped, "end of the watch")
		})
	}
}

// TestHTTP2WatchTooFarBehind: a watch whose client does not read ends with the write
// timeout, and its connection holds nothing afterwards.
func TestHTTP2WatchTooFarBehind(t *testing.T) {
	writers, stopped := make(chan api.StreamWriter, 1), make(chan struct{})
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &streamFunc{
			start: func(w api.StreamWriter) { writers <- w },
			stop:  func() { close(stopped) },
		}}
	}, func(o *Options) { o.WriteTimeout = 200 * time.Millisecond })
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = c.WriteWindowUpdate(0, 1<<30)
	c.request("GET", "/", false)
	w := receive(t, writers, "watch").(api.SharedWriter)
	failed := make(chan error, 1)
	go func() {
		var err error
		for piece := [][]byte{make([]byte, 15000)}; err == nil; {
			if !w.QueueFrames(piece) {
				err = w.WriteFrames(piece)
			}
			w.Flush()
		}
		failed <- err
	}()
	if err := receive(t, failed, "error"); !errors.Is(err, errClientLeft) && !isTimeout(err) {
		t.Errorf("writing: %v", err)
	}
	receive(t, stopped, "end of the watch")
	ts.holdsNothing()
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// holdsNothing waits until no buffer is in use.
func (ts *testServer) holdsNothing() {
	ts.t.Helper()
	for end := time.Now().Add(patience); ts.buffers.held.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.t.Fatalf("%d bytes are held", ts.buffers.held.Load())
		}
	}
}

// inBubble has f talk to a server whose clock, and f's, is a bubble's.
func inBubble(t *testing.T, h handlerFunc, f func(t *testing.T, dial func() *frameConn, conn func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := fasthttputil.NewInmemoryListener()
		if err := s.Serve(ln, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		var last net.Conn
		f(t, func() *frameConn {
			if last, err = ln.Dial(); err != nil {
				t.Fatal(err)
			}
			c := newFrameConn(t, last)
			_ = last.SetDeadline(time.Time{})
			return c
		}, func() net.Conn { return last })
		_ = last.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestHTTP2BusyConnection: the time for a frame begins with the frame, also where the
// connection never falls silent between two.
func TestHTTP2BusyConnection(t *testing.T) {
	got := make(chan error, 1)
	inBubble(t, func(_ context.Context, r *api.Request) *api.Response {
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
		return text("read")
	}, func(t *testing.T, dial func() *frameConn, conn func() net.Conn) {
		c := dial()
		go func() {
			for {
				if _, err := c.ReadFrame(); err != nil {
					return
				}
			}
		}()
		c.request("POST", "/", true)
		var b bytes.Buffer
		_ = http2.NewFramer(&b, nil).WriteData(1, false, make([]byte, 91))
		one := b.Bytes()
		// Each write ends within the head of a frame.
		_, err := conn().Write(one[:5])
		next := append(bytes.Clone(one[5:]), one[:5]...)
		for began := time.Now(); err == nil && time.Since(began) < 10*DefaultReadHeaderTimeout; time.Sleep(DefaultReadHeaderTimeout / 10) {
			_, err = conn().Write(next)
		}
		if err == nil {
			_, err = conn().Write(one[5:])
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteData(1, true, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("the body ended with %v", err)
		}
	})
}

// TestHTTP2SlowHeader: all frames of a header are to come within the time for one.
func TestHTTP2SlowHeader(t *testing.T) {
	inBubble(t, func(context.Context, *api.Request) *api.Response { return text("not reached") },
		func(t *testing.T, dial func() *frameConn, _ func() net.Conn) {
			c := dial()
			go func() {
				for {
					if _, err := c.ReadFrame(); err != nil {
						return
					}
				}
			}()
			began := time.Now()
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for err == nil {
				time.Sleep(DefaultReadHeaderTimeout / 16)
				err = c.WriteContinuation(1, false, []byte{0x87})
			}
			if took := time.Since(began); took > 2*DefaultReadHeaderTimeout-DefaultReadHeaderTimeout/2 {
				t.Errorf("the connection lived %v", took)
			}
		})
}

// TestHTTP2HalfFrame: an answer does not wait for the rest of the frame behind its
// request.
func TestHTTP2HalfFrame(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	c.request("GET", "/", false)
	c.until(isEnd(1))
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}, EndHeaders: true, EndStream: true})
	b.Write([]byte{0, 0, 8, 6, 0}) // a PING begins
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.until(isEnd(3))
}

// TestHTTP2HeadUnread: what has no body is not answered without end either to a client
// that does not read.
func TestHTTP2HeadUnread(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 401, Header: api.Header{{Name: "X-Long", Value: strings.Repeat("x", 200)}}}
	})
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	c.request("HEAD", "/", false, "a", "b")
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
	var b bytes.Buffer
	c.Framer = http2.NewFramer(&b, nil)
	c.request("HEAD", "/", false, "a", "b")
	if b.Len()%2 != 0 {
		t.Fatalf("a request takes %d bytes", b.Len())
	}
	_, _ = conn.Write(b.Next(1)) // from here on no buffer of an even size ends with a frame
	most := int64(0)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	for err := error(nil); err == nil && c.nextID < 800_000; {
		for b.Len() < 16<<10 {
			c.request("HEAD", "/", false, "a", "b")
		}
		_, err = conn.Write(b.Next(16 << 10))
		rest := bytes.Clone(b.Bytes())
		b.Reset()
		b.Write(rest)
		most = max(most, ts.buffers.held.Load())
	}
	_ = conn.NetConn().Close() // a goodbye would wait for the server
	if most > 12*queueLimit {
		t.Errorf("%d bytes were held", most)
	}
}

// TestHTTP2Crumbs: a cookie in many fields costs no more than its length.
func TestHTTP2Crumbs(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- strings.Join(r.Header.Values("Cookie"), "|")
		return text("")
	})
	c := ts.dialFrames()
	header := []string{"cookie", "a=" + strings.Repeat("b", 24<<10)}
	for range 900 {
		header = append(header, "cookie", "c")
	}
	c.request("GET", "/", false)
	receive(t, got, "request")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.requestInFrames("GET", "/", header...)
	cookie := receive(t, got, "request")
	runtime.ReadMemStats(&after)
	if want := header[1] + strings.Repeat("; c", 900); cookie != want {
		t.Errorf("a cookie of %d bytes, want %d", len(cookie), len(want))
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// TestHTTP2Malformed: requests that another reader could take for another request.
func TestHTTP2Malformed(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return text(fmt.Sprintf("%q %q %q", r.Header, r.RawPath, r.Host))
	})
	get := []string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/"}
	with := func(fields ...string) []string { return append(append([]string{}, get...), fields...) }
	for name, fields := range map[string][]string{
		"blank before a method": {":method", " GET", ":scheme", "https", ":authority", "x", ":path", "/"},
		"tab behind authority":  {":method", "GET", ":scheme", "https", ":authority", "x\t", ":path", "/"},
		"blank in the path":     {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/a b"},
		"fragment":              {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/a#b"},
		"authorities":           {":method", "GET", ":scheme", "https", ":path", "/", ":authority", "", ":authority", "b"},
		"authorities, same":     {":method", "GET", ":scheme", "https", ":path", "/", ":authority", "", ":authority", ""},
		"host and authority":    with("host", "y"),
		"field of a connection": with("proxy-connection", "close"),
		"pseudo field behind":   with("a", "b", ":path", "/c"),
		"protocol of a GET":     with(":protocol", "websocket"),
		"lengths":               with("content-length", "0", "content-length", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.dialFrames()
			c.fields(1, fields...)
			c.until(func(frame http2.Frame) bool {
				if data, ok := frame.(*http2.DataFrame); ok {
					t.Fatalf("served: %s", data.Data())
				}
				r, ok := frame.(*http2.RSTStreamFrame)
				if ok && r.ErrCode != http2.ErrCodeProtocol {
					t.Errorf("reset with %v", r.ErrCode)
				}
				return ok
			})
		})
	}
}

// TestHTTP2Blanks: white space around a value is none of it, as over HTTP/1.1.
func TestHTTP2Blanks(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- r.Header.Get("Authorization")
		return text("")
	})
	for value, want := range map[string]string{"Bearer ": "Bearer", " Bearer a\t": "Bearer a", " ": ""} {
		c := ts.dialFrames()
		c.request("GET", "/", false, "authorization", value)
		if header := receive(t, got, "request"); header != want {
			t.Errorf("%q came as %q, want %q", value, header, want)
		}
	}
}

// fields begins a request of nothing but these.
func (f *frameConn) fields(id uint32, fields ...string) {
	f.t.Helper()
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		f.t.Fatal(err)
	}
}

// TestHTTP2RapidReset: requests that are given up at once earn nothing, also where their
// handlers end at once.
func TestHTTP2RapidReset(t *testing.T) {
	var calls atomic.Int64
	ts := startServer(t, func(ctx context.Context, _ *api.Request) *api.Response {
		calls.Add(1)
		<-ctx.Done()
		return text("late")
	})
	c := ts.dialFrames()
	c.tolerant()
	ended := make(chan http2.ErrCode, 1)
	go func() { code, _ := c.goAwayOf(); ended <- code }()
	began := time.Now()
	c.flood(1_000_000, func(int) error {
		id := c.request("GET", "/", false)
		return errors.Join(c.failed(), c.WriteRSTStream(id, http2.ErrCodeCancel))
	})
	if code := receive(t, ended, "end"); code != http2.ErrCodeEnhanceYourCalm && code != 0 {
		t.Errorf("ended with %v", code)
	}
	seconds := int64(time.Since(began)/time.Second) + 2
	if n, most := calls.Load(), (effortCredit+seconds*effortPerSec)/effortReset; n > most {
		t.Errorf("%d handlers were called, want at most %d", n, most)
	}
}

// TestHTTP2BehindGoAway: requests that nobody serves any more are not taken without end.
func TestHTTP2BehindGoAway(t *testing.T) {
	release := make(chan struct{})
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { <-release; return text("x") })
	c := ts.dialFrames()
	c.request("GET", "/", false)
	over := make(chan error, 1)
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameSettings })
	_ = c.WritePing(false, [8]byte{})
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // the request is known
	go func() { over <- ts.Shutdown(context.Background()) }()
	c.until(func(frame http2.Frame) bool {
		p, ok := frame.(*http2.PingFrame)
		if ok {
			_ = c.WritePing(true, p.Data)
		}
		return ok
	})
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameGoAway })
	c.tolerant()
	ended := make(chan http2.ErrCode, 1)
	go func() { code, _ := c.goAwayOf(); ended <- code }()
	if n := c.flood(1_000_000, func(int) error { c.request("GET", "/", false); return c.failed() }); n == 1_000_000 {
		t.Errorf("%d requests were taken", n)
	}
	receive(t, ended, "end")
	close(release)
	if err := receive(t, over, "end of Shutdown"); err != nil {
		t.Error(err)
	}
}

// TestHTTP2UnwantedData: what is sent for a body that nobody reads is not free.
func TestHTTP2UnwantedData(t *testing.T) {
	for name, size := range map[string]int{"/watch": 1, "/answered": 1, "/answered in large frames": frameSize} {
		t.Run(name, func(t *testing.T) {
			path, _, _ := strings.Cut(name, " ")
			data := make([]byte, size)
			ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
				if r.Path == "/watch" {
					return &api.Response{Status: 200, Stream: lateStream(func(api.StreamWriter) {})}
				}
				return text("answered")
			})
			c := ts.dialFrames()
			id := c.request("POST", path, true)
			ended := make(chan struct{})
			go func() { _, _ = c.goAwayOf(); close(ended) }()
			n := c.flood(1_000_000, func(int) error { return c.WriteData(id, false, data) })
			if n == 1_000_000 {
				t.Errorf("%d frames were taken", n)
			}
			receive(t, ended, "end")
		})
	}
}

// TestHTTP2LateData: what clients have sent of many uploads at once, before they know that
// nobody wants them, does not end the connection.
func TestHTTP2LateData(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response { return text(r.Method) })
	c := ts.dialFrames()
	reset := map[uint32]bool{}
	for len(reset) < DefaultMaxStreams {
		reset[c.request("POST", "/", true)] = true
	}
	left := len(reset)
	c.until(func(frame http2.Frame) bool {
		if r, ok := frame.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeNo {
			left--
		}
		return left == 0
	})
	data := make([]byte, 4*updateBytes)
	for range uploadBuffer / len(data) / 8 {
		for id := range reset {
			if err := c.WriteData(id, false, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := c.request("GET", "/", false)
	c.until(func(frame http2.Frame) bool {
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			t.Fatal(f)
		case *http2.RSTStreamFrame:
			t.Errorf("reset again: %v", f)
		}
		return isEnd(next)(frame)
	})
}

// TestHTTP2LateTrailers: what a client sent before it learned that its request is over is
// no fault of the connection.
func TestHTTP2LateTrailers(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("answered") })
	c := ts.dialFrames()
	id := c.request("POST", "/", true)
	c.until(isReset(id))
	if err := c.WriteData(id, false, []byte("more")); err != nil {
		t.Fatal(err)
	}
	c.trailers(id, "checksum", "1")
	next := c.request("GET", "/", false)
	c.until(func(frame http2.Frame) bool {
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			t.Fatal(g)
		}
		if r, ok := frame.(*http2.RSTStreamFrame); ok {
			t.Errorf("reset again: %v", r)
		}
		return isEnd(next)(frame)
	})
}

// TestHTTP2HeadTooLarge: a response to HEAD has no body, whoever makes it.
func TestHTTP2HeadTooLarge(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("not reached") })
	c := ts.dialFrames()
	var large []string
	for range 7 {
		large = append(large, "a", strings.Repeat("x", 10<<10))
	}
	id := c.requestInFrames("HEAD", "/", large...)
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && (h.PseudoValue("status") != "431" || !h.StreamEnded()) {
			t.Errorf("status %s, ended: %v", h.PseudoValue("status"), h.StreamEnded())
		}
		return ok && h.StreamID == id
	})
}

// TestHTTP2OwnFields: fields that belong to a connection of HTTP/1.1 are not sent.
func TestHTTP2OwnFields(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		resp := text("x")
		for _, name := range []string{"Upgrade", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding"} {
			resp.Header = append(resp.Header, api.HeaderField{Name: name, Value: "x"})
		}
		return resp
	})
	c := ts.dialFrames()
	c.request("GET", "/", false)
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok {
			for _, f := range h.RegularFields() {
				switch f.Name {
				case "upgrade", "proxy-connection", "keep-alive", "transfer-encoding":
					t.Errorf("sent: %v", f)
				}
			}
		}
		return ok
	})
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
