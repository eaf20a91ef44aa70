package edge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

func TestUploads(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Body == nil {
			return edgetest.Text("none")
		}
		n, err := io.Copy(io.Discard, r.Body)
		return edgetest.Text(fmt.Sprintf("%d %d %v", r.ContentLength, n, err))
	})
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		for _, size := range []int{0, 1, 5000, 1 << 20} {
			data := bytes.Repeat([]byte("x"), size)
			for _, known := range []bool{true, false} {
				var body io.Reader = bytes.NewReader(data)
				want := fmt.Sprintf("%d %d <nil>", size, size)
				switch {
				case known && size == 0:
					body, want = http.NoBody, "none"
				case !known:
					body, want = struct{ io.Reader }{body}, fmt.Sprintf("-1 %d <nil>", size)
				}
				resp, err := c.Post(url, "text/plain", body)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if string(got) != want {
					t.Errorf("%d bytes, known %v: got %q, want %q", size, known, got, want)
				}
			}
		}
	})
}

// TestEcho streams a body back while it is sent: each line is answered before the
// next is written.
func TestEcho(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: -1, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
			return io.Copy(w, r.Body)
		})}
	})
	lines := []string{"one\n", "two\n", "three\n"}
	t.Run("h2", func(t *testing.T) {
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", "https://"+ts.Secure, pr)
		resp, err := ts.Client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, line := range lines {
			go func() { _, _ = io.WriteString(pw, line) }()
			got := make([]byte, len(line))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != line {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		_ = pw.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Fatalf("rest %q, %v", rest, err)
		}
	})
	for name, c := range map[string]*edgetest.RawConn{"plain": ts.Dial(), "tls": ts.DialTLS()} {
		t.Run(name, func(t *testing.T) {
			c.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
			resp := c.Head("POST")
			for _, line := range lines {
				c.Send("%x\r\n%s\r\n", len(line), line)
				got := make([]byte, len(line))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != line {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			c.Send("0\r\n\r\n")
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Fatalf("rest %q, %v", rest, err)
			}
			if !resp.Close {
				t.Error("a response that began before the request ended should close the connection")
			}
			c.Ended()
		})
	}
}

func TestContinue(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/refuse" {
			return &api.Response{Status: 401, Body: []byte("no")}
		}
		b, err := io.ReadAll(r.Body)
		return edgetest.Text(fmt.Sprintf("%s %v %v", b, err, r.Header.Has("Expect")))
	})
	c := ts.Dial()
	for range 2 {
		c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n")
		c.Expect("HTTP/1.1 100 Continue\r\n\r\n")
		c.Send("abc")
		if _, body := c.Response("POST"); body != "abc <nil> false" {
			t.Errorf("got %q", body)
		}
	}
	c.Send("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	if resp, body := c.Response("POST"); resp.StatusCode != 401 || body != "no" || !resp.Close {
		t.Errorf("got %d %q %v", resp.StatusCode, body, resp.Close)
	}
	c.Ended()
	c = ts.Dial() // HTTP/1.0 knows no 100
	c.Send("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
	if _, body := c.Response("POST"); body != "abc <nil> false" {
		t.Errorf("got %q", body)
	}
}

func TestUnreadBody(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/some" {
			_, _ = io.ReadFull(r.Body, make([]byte, 2))
		}
		return edgetest.Text("ok")
	})
	c := ts.Dial()
	for _, path := range []string{"/none", "/some"} { // what is left is read to keep the connection
		c.Send("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s", path, strings.Repeat("x", 100000))
		if resp, body := c.Response("POST"); body != "ok" || resp.Close {
			t.Errorf("%s: got %q, close %v", path, body, resp.Close)
		}
	}
	// This much is not; the answer arrives although the client is still sending.
	c.Send("POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 600000\r\n\r\n%s", strings.Repeat("x", 300000))
	if resp, body := c.Response("POST"); body != "ok" || !resp.Close {
		t.Errorf("got %q, close %v", body, resp.Close)
	}
	_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	c.Ended()
}

// TestDoneBeforeRest tells a response that it is over before a client has sent the
// rest of a body that nobody wants.
func TestDoneBeforeRest(t *testing.T) {
	done := make(chan struct{}, 1)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 401, Done: func(int64, error) { done <- struct{}{} }}
	})
	c := ts.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
	if resp, _ := c.Response("POST"); resp.Close {
		t.Error("the connection is closed")
	}
	edgetest.Receive(t, done, "Done")
	c.Send("defghijPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	c.Response("POST")
}

// TestWatchedAndRead keeps connections whose requests watch for the client's leaving
// and have read their bodies, whichever of the two comes first.
func TestWatchedAndRead(t *testing.T) {
	ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
		_ = ctx.Done()
		_, _ = io.ReadAll(r.Body)
		return edgetest.Text("ok")
	})
	var clients sync.WaitGroup
	for range 16 {
		c := ts.Dial()
		clients.Go(func() {
			for i := range 500 {
				c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
				if resp, _ := c.Response("POST"); resp.Close {
					t.Errorf("the connection is closed after %d requests", i)
					return
				}
			}
		})
	}
	clients.Wait()
}

func TestBrokenUploads(t *testing.T) {
	errs := make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		_, err := io.ReadAll(r.Body)
		errs <- err
		return edgetest.Text("x")
	}, func(o *edge.Options) { o.BodyIdleTimeout = 50 * time.Millisecond })
	for _, tc := range []struct {
		name, send string
		leave      bool
		want       error
	}{
		{"client leaves", "Content-Length: 10\r\n\r\nabc", true, io.ErrUnexpectedEOF},
		{"client leaves in a chunk", "Transfer-Encoding: chunked\r\n\r\na\r\nabc", true, io.ErrUnexpectedEOF},
		{"client leaves before the last chunk", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true, io.ErrUnexpectedEOF},
		{"client leaves in the trailer", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", true, nil},
		{"chunk with a negative size", "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", false, nil},
		{"chunk that ends in a line feed", "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", false, nil},
		{"chunk without its end", "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", false, nil},
		{"bad chunk", "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc", false, nil},
		{"client stands still", "Content-Length: 10\r\n\r\nabc", false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := ts.Dial()
			c.Send("POST / HTTP/1.1\r\nHost: x\r\n%s", tc.send)
			if tc.leave {
				_ = c.Close()
			}
			err := edgetest.Receive(t, errs, "error")
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
			if tc.leave {
				return
			}
			if resp, _ := c.Response("POST"); !resp.Close {
				t.Error("the connection is kept")
			}
		})
	}
}

// TestBodyAfterResponse reads a body from another goroutine, as HTTP clients do,
// while its request ends.
func TestBodyAfterResponse(t *testing.T) {
	first, errs := make(chan struct{}), make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		go func() {
			buf := make([]byte, 3)
			_, err := io.ReadFull(r.Body, buf)
			close(first)
			for err == nil {
				_, err = r.Body.Read(buf)
			}
			errs <- err
		}()
		<-first
		return edgetest.Text("early")
	})
	c := ts.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
	if _, body := c.Response("POST"); body != "early" {
		t.Errorf("got %q", body)
	}
	if err := edgetest.Receive(t, errs, "end of the body"); errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// TestBodyReadAfterResponse: who reads a body when its request is over does not wait for a
// client that has still to send the rest of it.
func TestBodyReadAfterResponse(t *testing.T) {
	responded, errs := make(chan struct{}), make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		go func() {
			<-responded
			var err error
			for err == nil {
				_, err = r.Body.Read(make([]byte, 3))
			}
			errs <- err
		}()
		return edgetest.Text("early")
	})
	c := ts.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
	if _, body := c.Response("POST"); body != "early" {
		t.Errorf("got %q", body)
	}
	close(responded)
	if err := edgetest.Receive(t, errs, "end of the body"); errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestBodyTo(t *testing.T) {
	object := bytes.Repeat([]byte("0123456789abcdef"), 500)
	boom := errors.New("boom")
	many := func(n int, err error) io.WriterTo {
		return edgetest.WriterTo(func(w io.Writer) (int64, error) {
			for range n {
				if _, err := w.Write(object); err != nil {
					return 0, err
				}
			}
			return 0, err
		})
	}
	size := int64(len(object))
	responses := map[string]*api.Response{
		"/known":        {Status: 200, BodyTo: many(100, nil), Length: 100 * size},
		"/large":        {Status: 200, BodyTo: bytes.NewReader(bytes.Repeat(object, 100)), Length: 100 * size},
		"/unknown":      {Status: 200, BodyTo: many(100, nil), Length: -1},
		"/unknownlarge": {Status: 200, BodyTo: bytes.NewReader(bytes.Repeat(object, 100)), Length: -1},
		"/empty":        {Status: 200, BodyTo: many(0, nil), Length: 0},
		"/emptyunknown": {Status: 200, BodyTo: many(0, nil), Length: -1},
		"/short":        {Status: 200, BodyTo: many(99, nil), Length: 100 * size},
		"/shortsmall":   {Status: 200, BodyTo: many(1, nil), Length: 2 * size},
		"/long":         {Status: 200, BodyTo: many(101, nil), Length: 100 * size},
		"/fails":        {Status: 200, BodyTo: many(50, boom), Length: 100 * size},
		"/failsearly":   {Status: 200, BodyTo: many(1, boom), Length: 100 * size},
		"/failsunknown": {Status: 200, BodyTo: many(50, boom), Length: -1},
	}
	type outcome struct {
		n   int64
		err error
	}
	outcomes := make(chan outcome, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		resp := *responses[r.Path]
		resp.Ready = r.RawQuery == "ready"
		if r, ok := resp.BodyTo.(*bytes.Reader); ok {
			_, _ = r.Seek(0, io.SeekStart)
		}
		resp.Done = func(n int64, err error) { outcomes <- outcome{n, err} }
		return &resp
	})
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		for path, r := range responses {
			for _, tc := range []struct{ method, query string }{{"GET", ""}, {"GET", "?ready"}, {"HEAD", ""}} {
				method := tc.method
				req, _ := http.NewRequest(method, url+path+tc.query, nil)
				resp, err := c.Do(req)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				got := edgetest.Receive(t, outcomes, "Done")
				good := strings.Trim(path, "/") == "empty" || path == "/emptyunknown" || strings.HasSuffix(path, "known") && !strings.HasPrefix(path, "/fail") || strings.HasSuffix(path, "large")
				want, length := 100*size, r.Length
				if path == "/emptyunknown" && tc.query == "?ready" && resp.ProtoMajor == 2 {
					length = 0 // nothing went out before it was known to be all
				}
				if strings.HasPrefix(path, "/empty") {
					want = 0
				}
				switch {
				case method == "HEAD":
					if err != nil || len(body) > 0 || resp.ContentLength != r.Length || got.n != 0 || got.err != nil {
						t.Errorf("HEAD %s: %d bytes, %v, length %d, done %v", path, len(body), err, resp.ContentLength, got)
					}
				case good:
					if err != nil || int64(len(body)) != want || resp.ContentLength != length || got.n != want || got.err != nil {
						t.Errorf("%s: %d bytes, %v, length %d, done %v", path+tc.query, len(body), err, resp.ContentLength, got)
					}
				case path == "/shortsmall" || path == "/failsearly":
					if resp.StatusCode != 500 || err != nil || !strings.Contains(string(body), `"reason":"InternalError"`) || got.err == nil {
						t.Errorf("%s: %d %q %v", path+tc.query, resp.StatusCode, body, err)
					}
				default:
					if err == nil || got.err == nil {
						t.Errorf("%s: %d bytes, %v, done %v", path+tc.query, len(body), err, got)
					}
				}
			}
		}
	})
}

func TestSlowReader(t *testing.T) {
	errs := make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: edgetest.WriterTo(edgetest.Endless), Length: 1 << 40, Done: func(_ int64, err error) { errs <- err }}
	}, func(o *edge.Options) { o.WriteTimeout = 50 * time.Millisecond })
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := edgetest.Receive(t, errs, "write error"); err == nil {
			t.Error("no error")
		}
	})
}
