package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

// recordingStream hands out its writer and counts what is called.
type recordingStream struct {
	writer  chan api.StreamWriter
	stopped chan struct{}
	done    chan doneCall

	mu    sync.Mutex
	stops int
}

type doneCall struct {
	n   int64
	err error
}

func newRecordingStream() *recordingStream {
	return &recordingStream{writer: make(chan api.StreamWriter, 1), stopped: make(chan struct{}, 2), done: make(chan doneCall, 2)}
}

func (s *recordingStream) Start(w api.StreamWriter) { s.writer <- w }

func (s *recordingStream) Stop() {
	s.mu.Lock()
	s.stops++
	s.mu.Unlock()
	s.stopped <- struct{}{}
}

func (s *recordingStream) response() *api.Response {
	return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "application/json"}},
		Stream: s, Done: func(n int64, err error) { s.done <- doneCall{n, err} }}
}

// over waits for the end and makes sure that Stop came once.
func (s *recordingStream) over(t *testing.T) doneCall {
	t.Helper()
	receive(t, s.stopped, "Stop")
	d := receive(t, s.done, "Done")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops != 1 || len(s.done) > 0 {
		t.Errorf("Stop was called %d times", s.stops)
	}
	return d
}

func frames(s ...string) [][]byte {
	out := make([][]byte, len(s))
	for i := range s {
		out[i] = []byte(s[i])
	}
	return out
}

func startStreams(t *testing.T, change ...func(*Options)) (*testServer, chan *recordingStream) {
	streams := make(chan *recordingStream, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/other" {
			return text("other")
		}
		s := newRecordingStream()
		streams <- s
		return s.response()
	}, change...)
	return ts, streams
}

// TestStreamAbort: the client must not take what it has for everything.
func TestStreamAbort(t *testing.T) {
	ts, streams := startStreams(t)
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := receive(t, streams, "stream")
		w := receive(t, s.writer, "writer")
		if err := w.WriteFrames(frames("half")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		w.Abort()
		if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 {
			t.Errorf("rest %q, %v: a clean end", rest, err)
		}
		if err := w.WriteFrames(frames("more")); err == nil {
			t.Error("a write after Abort succeeded")
		}
		s.over(t)
	})
}

func TestStream(t *testing.T) {
	ts, streams := startStreams(t)
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := receive(t, streams, "stream")
		w := receive(t, s.writer, "writer")
		if resp.Header.Get("Content-Type") != "application/json" || resp.ContentLength != -1 {
			t.Errorf("header %v", resp.Header)
		}
		total := 0
		read := func(want string) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("got %d bytes, %v", len(got), err)
			}
			total += len(want)
		}
		write := func(f ...string) {
			t.Helper()
			if err := w.WriteFrames(frames(f...)); err != nil {
				t.Fatal(err)
			}
		}
		write("one\n", "two\n")
		read("one\ntwo\n")
		write()
		write("", "three\n")
		read("three\n")
		large := strings.Repeat("x", 300<<10)
		errs := make(chan error, 1)
		go func() { errs <- w.WriteFrames(frames("a", large, "b")) }()
		read("a" + large + "b")
		if err := receive(t, errs, "write"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		w.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("rest %q, %v", rest, err)
		}
		if d := s.over(t); d.n != int64(total) || d.err != nil {
			t.Errorf("done %v, want %d", d, total)
		}
		if err := w.WriteFrames(frames("late")); err == nil {
			t.Error("a write after the end succeeds")
		}
	})
}

func TestStreamOnTheWire(t *testing.T) {
	ts, streams := startStreams(t)
	for name, c := range map[string]*rawConn{"plain": ts.dial(), "tls": ts.dialTLS()} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the connection goes on after a stream that ended well
				c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				s := receive(t, streams, "stream")
				w := receive(t, s.writer, "writer")
				resp := c.head("GET")
				if resp.Header.Get("Content-Type") == "" || resp.Close {
					t.Errorf("head %v", resp.Header)
				}
				_ = w.WriteFrames(frames("one", "two"))
				c.expect("6\r\nonetwo\r\n")
				w.Close()
				c.expect("0\r\n\r\n")
				s.over(t)
			}
			c.send("GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, body := c.response("GET"); body != "other" {
				t.Errorf("got %q", body)
			}
		})
	}
}

func TestStream10(t *testing.T) {
	ts, streams := startStreams(t)
	c := ts.dial()
	c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	s := receive(t, streams, "stream")
	w := receive(t, s.writer, "writer")
	resp := c.head("GET")
	if !resp.Close || resp.TransferEncoding != nil {
		t.Errorf("head %v", resp.Header)
	}
	_ = w.WriteFrames(frames("one", "two"))
	c.expect("onetwo")
	w.Close()
	c.ended()
	s.over(t)
}

func TestStreamHead(t *testing.T) {
	ts, streams := startStreams(t)
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Head(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		s := receive(t, streams, "stream")
		s.over(t)
		if len(s.writer) > 0 {
			t.Error("the stream was started")
		}
	})
}

func TestClientLeavesStream(t *testing.T) {
	ts, streams := startStreams(t)
	t.Run("closes", func(t *testing.T) {
		for name, c := range map[string]*rawConn{"plain": ts.dial(), "tls": ts.dialTLS()} {
			t.Run(name, func(t *testing.T) {
				c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				s := receive(t, streams, "stream")
				w := receive(t, s.writer, "writer")
				_ = c.Close()
				if d := s.over(t); d.err != nil {
					t.Errorf("done %v", d)
				}
				if w.WriteFrames(frames("x")) == nil {
					t.Error("a write after the end succeeds")
				}
			})
		}
	})
	t.Run("sends more", func(t *testing.T) {
		for _, more := range []string{"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", ""} {
			c := ts.dial()
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n%s", more)
			s := receive(t, streams, "stream")
			c.head("GET")
			if more == "" {
				c.send("x")
			}
			s.over(t)
		}
	})
	t.Run("resets", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.secure, nil)
		resp, err := ts.client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := receive(t, streams, "stream")
		cancel()
		s.over(t)
	})
}

func TestStreamSlowReader(t *testing.T) {
	ts, streams := startStreams(t, func(o *Options) { o.WriteTimeout = 50 * time.Millisecond })
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := receive(t, streams, "stream")
		w := receive(t, s.writer, "writer")
		frame := [][]byte{bytes.Repeat([]byte("x"), 100<<10)}
		err = nil
		for err == nil {
			err = w.WriteFrames(frame)
		}
		if again := w.WriteFrames(frame); again == nil {
			t.Error("the error is not final")
		}
		if d := s.over(t); d.err == nil {
			t.Error("Done knows no error")
		}
	})
}

// TestStreamUnderBody keeps a stream while the client is still sending a body that
// nobody reads.
func TestStreamUnderBody(t *testing.T) {
	ts, streams := startStreams(t)
	c := ts.dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s", strings.Repeat("x", 50000))
	s := receive(t, streams, "stream")
	w := receive(t, s.writer, "writer")
	c.head("POST")
	c.send("%s", strings.Repeat("x", 50000))
	_ = w.WriteFrames(frames("one"))
	c.expect("3\r\none\r\n")
	w.Close()
	c.expect("0\r\n\r\n")
	c.ended()
	s.over(t)
}

// TestManyStreams writes to many streams of one HTTP/2 connection at once.
func TestManyStreams(t *testing.T) {
	const n = 200 // on one connection
	streams := make(chan *recordingStream, n)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/first" {
			return text("")
		}
		s := newRecordingStream()
		streams <- s
		return s.response()
	})
	c := ts.client(true)
	first, err := c.Get("https://" + ts.secure + "/first") // or each would dial
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Body.Close()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			resp, err := c.Get(fmt.Sprintf("https://%s/%d", ts.secure, i))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 10*1000 {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
	for range n {
		s := receive(t, streams, "stream")
		wg.Go(func() {
			w := receive(t, s.writer, "writer")
			for range 10 {
				if err := w.WriteFrames([][]byte{make([]byte, 400), make([]byte, 600)}); err != nil {
					t.Error(err)
				}
			}
			w.Close()
			s.over(t)
		})
	}
	wg.Wait()
	if got := ts.gauge("kubeweir_connections", "secure", "h2"); got != 1 {
		t.Errorf("%v connections", got)
	}
}

// TestCloseRaces closes and leaves at the same time as writes go on.
func TestCloseRaces(t *testing.T) {
	ts, streams := startStreams(t)
	for i := range 50 {
		c := ts.dial()
		if i%2 == 0 {
			c = ts.dialTLS()
		}
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		s := receive(t, streams, "stream")
		w := receive(t, s.writer, "writer")
		c.head("GET")
		var wg sync.WaitGroup
		wg.Go(func() {
			for w.WriteFrames(frames("xxxxxxxx")) == nil { //nolint:revive // Until it ends.
			}
		})
		wg.Go(w.Close)
		wg.Go(func() {
			if i%3 == 0 {
				_ = c.Close()
			} else {
				_, _ = io.Copy(io.Discard, httputil.NewChunkedReader(c.br))
				_ = c.Close()
			}
		})
		wg.Wait()
		s.over(t)
	}
}

func TestContextOfStream(t *testing.T) {
	contexts := make(chan context.Context, 1)
	ts := startServer(t, func(ctx context.Context, _ *api.Request) *api.Response {
		contexts <- ctx
		return &api.Response{Status: 200, Stream: &streamFunc{start: func(w api.StreamWriter) { _ = w.WriteFrames(frames("x")) }}}
	})
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		ctx := receive(t, contexts, "context")
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
		done := ctx.Done()
		_ = resp.Body.Close()
		receive(t, done, "end of the context")
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
	})
}
