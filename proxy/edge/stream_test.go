package edge_test

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

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestStreamAbort: the client must not take what it has for everything.
func TestStreamAbort(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		w := edgetest.Receive(t, s.Writer, "writer")
		if err := w.WriteFrames(edgetest.Frames("half")); err != nil {
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
		if err := w.WriteFrames(edgetest.Frames("more")); err == nil {
			t.Error("a write after Abort succeeded")
		}
		s.Over(t)
	})
}

func TestStream(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		w := edgetest.Receive(t, s.Writer, "writer")
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
			if err := w.WriteFrames(edgetest.Frames(f...)); err != nil {
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
		go func() { errs <- w.WriteFrames(edgetest.Frames("a", large, "b")) }()
		read("a" + large + "b")
		if err := edgetest.Receive(t, errs, "write"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		w.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("rest %q, %v", rest, err)
		}
		if d := s.Over(t); d.N != int64(total) || d.Err != nil {
			t.Errorf("done %v, want %d", d, total)
		}
		if err := w.WriteFrames(edgetest.Frames("late")); err == nil {
			t.Error("a write after the end succeeds")
		}
	})
}

func TestStreamOnTheWire(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	for name, c := range map[string]*edgetest.RawConn{"plain": ts.Dial(), "tls": ts.DialTLS()} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the connection goes on after a stream that ended well
				c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				s := edgetest.Receive(t, streams, "stream")
				w := edgetest.Receive(t, s.Writer, "writer")
				resp := c.Head("GET")
				if resp.Header.Get("Content-Type") == "" || resp.Close {
					t.Errorf("head %v", resp.Header)
				}
				_ = w.WriteFrames(edgetest.Frames("one", "two"))
				c.Expect("6\r\nonetwo\r\n")
				w.Close()
				c.Expect("0\r\n\r\n")
				s.Over(t)
			}
			c.Send("GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, body := c.Response("GET"); body != "other" {
				t.Errorf("got %q", body)
			}
		})
	}
}

func TestStream10(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	c := ts.Dial()
	c.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	s := edgetest.Receive(t, streams, "stream")
	w := edgetest.Receive(t, s.Writer, "writer")
	resp := c.Head("GET")
	if !resp.Close || resp.TransferEncoding != nil {
		t.Errorf("head %v", resp.Header)
	}
	_ = w.WriteFrames(edgetest.Frames("one", "two"))
	c.Expect("onetwo")
	w.Close()
	c.Ended()
	s.Over(t)
}

func TestStreamHead(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Head(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		s.Over(t)
		if len(s.Writer) > 0 {
			t.Error("the stream was started")
		}
	})
}

func TestClientLeavesStream(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	t.Run("closes", func(t *testing.T) {
		for name, c := range map[string]*edgetest.RawConn{"plain": ts.Dial(), "tls": ts.DialTLS()} {
			t.Run(name, func(t *testing.T) {
				c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				s := edgetest.Receive(t, streams, "stream")
				w := edgetest.Receive(t, s.Writer, "writer")
				_ = c.Close()
				if d := s.Over(t); d.Err != nil {
					t.Errorf("done %v", d)
				}
				if w.WriteFrames(edgetest.Frames("x")) == nil {
					t.Error("a write after the end succeeds")
				}
			})
		}
	})
	t.Run("sends more", func(t *testing.T) {
		for _, more := range []string{"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", ""} {
			c := ts.Dial()
			c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n%s", more)
			s := edgetest.Receive(t, streams, "stream")
			c.Head("GET")
			if more == "" {
				c.Send("x")
			}
			s.Over(t)
		}
	})
	t.Run("resets", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.Secure, nil)
		resp, err := ts.Client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		cancel()
		s.Over(t)
	})
}

func TestStreamSlowReader(t *testing.T) {
	ts, streams := edgetest.StartStreams(t, func(o *edge.Options) { o.WriteTimeout = 50 * time.Millisecond })
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		w := edgetest.Receive(t, s.Writer, "writer")
		frame := [][]byte{bytes.Repeat([]byte("x"), 100<<10)}
		err = nil
		for err == nil {
			err = w.WriteFrames(frame)
		}
		if again := w.WriteFrames(frame); again == nil {
			t.Error("the error is not final")
		}
		if d := s.Over(t); d.Err == nil {
			t.Error("Done knows no error")
		}
	})
}

// TestStreamUnderBody keeps a stream while the client is still sending a body that
// nobody reads.
func TestStreamUnderBody(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	c := ts.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s", strings.Repeat("x", 50000))
	s := edgetest.Receive(t, streams, "stream")
	w := edgetest.Receive(t, s.Writer, "writer")
	c.Head("POST")
	c.Send("%s", strings.Repeat("x", 50000))
	_ = w.WriteFrames(edgetest.Frames("one"))
	c.Expect("3\r\none\r\n")
	w.Close()
	c.Expect("0\r\n\r\n")
	c.Ended()
	s.Over(t)
}

// TestManyStreams writes to many streams of one HTTP/2 connection at once.
func TestManyStreams(t *testing.T) {
	const n = 200 // on one connection
	streams := make(chan *edgetest.RecordingStream, n)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/first" {
			return edgetest.Text("")
		}
		s := edgetest.NewRecordingStream()
		streams <- s
		return s.Response()
	})
	c := ts.Client(true)
	first, err := c.Get("https://" + ts.Secure + "/first") // or each would dial
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Body.Close()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			resp, err := c.Get(fmt.Sprintf("https://%s/%d", ts.Secure, i))
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
		s := edgetest.Receive(t, streams, "stream")
		wg.Go(func() {
			w := edgetest.Receive(t, s.Writer, "writer")
			for range 10 {
				if err := w.WriteFrames([][]byte{make([]byte, 400), make([]byte, 600)}); err != nil {
					t.Error(err)
				}
			}
			w.Close()
			s.Over(t)
		})
	}
	wg.Wait()
	if got := ts.Gauge("kubeweir_connections", "secure", "h2"); got != 1 {
		t.Errorf("%v connections", got)
	}
}

// TestCloseRaces closes and leaves at the same time as writes go on.
func TestCloseRaces(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	for i := range 50 {
		c := ts.Dial()
		if i%2 == 0 {
			c = ts.DialTLS()
		}
		c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		s := edgetest.Receive(t, streams, "stream")
		w := edgetest.Receive(t, s.Writer, "writer")
		c.Head("GET")
		var wg sync.WaitGroup
		wg.Go(func() {
			for w.WriteFrames(edgetest.Frames("xxxxxxxx")) == nil { //nolint:revive // Until it ends.
			}
		})
		wg.Go(w.Close)
		wg.Go(func() {
			if i%3 == 0 {
				_ = c.Close()
			} else {
				_, _ = io.Copy(io.Discard, httputil.NewChunkedReader(c.Br))
				_ = c.Close()
			}
		})
		wg.Wait()
		s.Over(t)
	}
}

func TestContextOfStream(t *testing.T) {
	contexts := make(chan context.Context, 1)
	ts := edgetest.Start(t, func(ctx context.Context, _ *api.Request) *api.Response {
		contexts <- ctx
		return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { _ = w.WriteFrames(edgetest.Frames("x")) }}}
	})
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		ctx := edgetest.Receive(t, contexts, "context")
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
		done := ctx.Done()
		_ = resp.Body.Close()
		edgetest.Receive(t, done, "end of the context")
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
	})
}
