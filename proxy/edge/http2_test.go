package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// frameConn is an HTTP/2 client that writes frames.
type frameConn struct {
	*http2.Framer
	t       testing.TB
	nextID  uint32
	encoder *hpack.Encoder
	block   bytes.Buffer
	// lenient says that writes may fail; lastErr is that of the last request.
	lenient bool
	lastErr error
}

// tolerant lets requests fail.
func (f *frameConn) tolerant() { f.lenient = true }

// failed is why the last request could not be written.
func (f *frameConn) failed() error { return f.lastErr }

func (ts *testServer) dialH2() *tls.Conn {
	ts.t.Helper()
	conn, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (ts *testServer) dialFrames(settings ...http2.Setting) *frameConn {
	ts.t.Helper()
	return newFrameConn(ts.t, ts.dialH2(), settings...)
}

func newFrameConn(t testing.TB, conn net.Conn, settings ...http2.Setting) *frameConn {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	f := &frameConn{Framer: http2.NewFramer(conn, conn), t: t, nextID: 1}
	f.encoder = hpack.NewEncoder(&f.block)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return f
}

// request begins one and returns its stream; without a body it is complete.
func (f *frameConn) request(method, path string, body bool, header ...string) uint32 {
	f.t.Helper()
	f.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}, header...)
	for i := 0; i < len(fields); i += 2 {
		if err := f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			f.t.Fatal(err)
		}
	}
	id := f.nextID
	f.nextID += 2
	f.lastErr = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: !body})
	if f.lastErr != nil && !f.lenient {
		f.t.Fatal(f.lastErr)
	}
	return id
}

// until reads frames until want is satisfied with one.
func (f *frameConn) until(want func(http2.Frame) bool) {
	f.t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			f.t.Fatal(err)
		}
		if want(frame) {
			return
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			if err := f.WriteSettingsAck(); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// isReset says whether a frame resets a stream.
func isReset(id uint32) func(http2.Frame) bool {
	return func(frame http2.Frame) bool {
		_, ok := frame.(*http2.RSTStreamFrame)
		return ok && frame.Header().StreamID == id
	}
}

// TestHTTP2ClosedWindow: what net/http sends when the handler has returned waits no
// longer for the client than the rest.
func TestHTTP2ClosedWindow(t *testing.T) {
	for name, resp := range map[string]func() *api.Response{
		"small":   func() *api.Response { return text("not for you") },
		"written": func() *api.Response { return &api.Response{Status: 200, BodyTo: writerTo(hello), Length: 5} },
		"urgent":  func() *api.Response { return &api.Response{Status: 200, BodyTo: writerTo(hello), Length: -1} },
		"large":   func() *api.Response { return text(strings.Repeat("x", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, func(context.Context, *api.Request) *api.Response { return resp() },
				func(o *Options) { o.WriteTimeout = 50 * time.Millisecond })
			c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			id := c.request("GET", "/", false)
			c.until(isReset(id))
		})
	}
}

// TestHTTP2ClosedWindowOfRefused: what net/http refuses by itself waits no longer for
// the client either.
func TestHTTP2ClosedWindowOfRefused(t *testing.T) {
	var large []string
	for range 7 {
		large = append(large, "a", strings.Repeat("x", 10<<10))
	}
	for name, header := range map[string][]string{
		"connection": {"connection", "close"},
		"te":         {"te", "gzip"},
		"too large":  large,
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("not reached") },
				func(o *Options) { o.WriteTimeout = 50 * time.Millisecond })
			c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			id := c.requestInFrames("GET", "/", header...)
			c.until(isReset(id))
		})
	}
}

// TestHTTP2SlowAnswers: an answer may take as long as the handler likes, and so may the
// time between two parts of it.
func TestHTTP2SlowAnswers(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for name, answer := range map[string]func() *api.Response{
		"handler": func() *api.Response { time.Sleep(4 * timeout); return text("hello") },
		"body": func() *api.Response {
			return &api.Response{Status: 200, Length: -1, BodyTo: writerTo(func(w io.Writer) (int64, error) {
				_, _ = io.WriteString(w, "hel")
				time.Sleep(4 * timeout)
				_, err := io.WriteString(w, "lo")
				return 5, err
			})}
		},
		"stream": func() *api.Response {
			return &api.Response{Status: 200, Stream: lateStream(func(w api.StreamWriter) {
				time.AfterFunc(4*timeout, func() {
					_ = w.WriteFrames([][]byte{[]byte("hello")})
					w.Close()
				})
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, func(context.Context, *api.Request) *api.Response { return answer() },
				func(o *Options) { o.WriteTimeout = timeout })
			resp, err := ts.client(true).Get("https://" + ts.secure)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// lateStream is a stream of what it does when it is started.
type lateStream func(api.StreamWriter)

func (s lateStream) Start(w api.StreamWriter) { s(w) }
func (lateStream) Stop()                      {}

// requestInFrames begins a request whose header need not fit a frame.
func (f *frameConn) requestInFrames(method, path string, header ...string) uint32 {
	f.t.Helper()
	f.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}, header...)
	for i := 0; i < len(fields); i += 2 {
		if err := f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			f.t.Fatal(err)
		}
	}
	id := f.nextID
	f.nextID += 2
	block := f.block.Bytes()
	first := block[:min(len(block), 16<<10)]
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: true})
	for block = block[len(first):]; err == nil && len(block) > 0; {
		part := block[:min(len(block), 16<<10)]
		block = block[len(part):]
		err = f.WriteContinuation(id, len(block) == 0, part)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func hello(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, "hello")
	return int64(n), err
}

// TestHTTP2BodyThatNeverComes: reading a body ends by the idle timeout, or by the
// deadline that the handler has set, whichever is first.
func TestHTTP2BodyThatNeverComes(t *testing.T) {
	const moment = 50 * time.Millisecond
	for name, idle := range map[string]time.Duration{"idle": moment, "deadline": time.Hour} {
		t.Run(name, func(t *testing.T) {
			errs := make(chan error, 1)
			ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
				if idle > moment {
					d := r.Body.(interface{ SetReadDeadline(time.Time) error })
					_ = d.SetReadDeadline(time.Now().Add(moment))
				}
				_, err := io.ReadAll(r.Body)
				errs <- err
				return text("late")
			}, func(o *Options) { o.BodyIdleTimeout = idle })
			c := ts.dialFrames()
			id := c.request("POST", "/", true, "content-length", "10")
			if err := c.WriteData(id, false, []byte("half")); err != nil {
				t.Fatal(err)
			}
			if err := receive(t, errs, "error"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading: %v", err)
			}
			c.until(func(frame http2.Frame) bool {
				h, ok := frame.(*http2.MetaHeadersFrame)
				return ok && h.PseudoValue("status") == "200"
			})
		})
	}
}

// TestBodyDeadline is the same over HTTP/1.1.
func TestBodyDeadline(t *testing.T) {
	errs := make(chan error, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		d := r.Body.(interface{ SetReadDeadline(time.Time) error })
		_ = d.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		errs <- err
		return text("late")
	})
	for _, dial := range []func() *rawConn{ts.dial, ts.dialTLS} {
		for _, framing := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
			c := dial()
			c.send("%s", "POST / HTTP/1.1\r\nHost: x\r\n"+framing)
			if err := receive(t, errs, "error"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading: %v", err)
			}
			if _, body := c.response("POST"); body != "late" {
				t.Errorf("got %q", body)
			}
			c.ended()
		}
	}
	// The deadline was that body's own.
	c := ts.dial()
	for range 2 {
		c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
		if err := receive(t, errs, "error"); err != nil {
			t.Error(err)
		}
		c.response("POST")
	}
}

// TestHTTP2SlowButSteady: a client that sends something in time may take longer than the
// timeouts for all.
func TestHTTP2SlowButSteady(t *testing.T) {
	const pause, times = defaults.PingInterval * 3 / 4, 20
	inBubble(t, func(_ context.Context, r *api.Request) *api.Response {
		body, err := io.ReadAll(r.Body)
		return text(fmt.Sprint(len(body), err))
	}, func(t *testing.T, dial func() *frameConn, _ func() net.Conn) {
		c := dial()
		id, began := c.request("POST", "/", true), time.Now()
		for range times {
			time.Sleep(pause)
			c.write(id, "x", false)
		}
		c.write(id, "", true)
		c.expect(id, fmt.Sprint(times, nil))
		if took := time.Since(began); took < max(defaults.BodyIdleTimeout, defaults.WriteTimeout) {
			t.Errorf("it took %v, less than is borne of silence", took)
		}
	})
}
