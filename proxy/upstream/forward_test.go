package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// bothProtocols runs a test over HTTP/2 and HTTP/1.1.
func bothProtocols(t *testing.T, test func(t *testing.T, options ...serverOption)) {
	t.Run("HTTP2", func(t *testing.T) { test(t) })
	t.Run("HTTP1", func(t *testing.T) { test(t, http1Only) })
}

// bothProtocolsInBubbles is bothProtocols, with a clock of their own.
func bothProtocolsInBubbles(t *testing.T, test func(t *testing.T, options ...serverOption)) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		inBubble(t, func(t *testing.T) { test(t, options...) })
	})
}

func TestPathAndQueryArriveByteForByte(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(http.ResponseWriter, *http.Request) {}, options...)
		c := s.client(t)
		for _, target := range []string{
			"/api/v1/namespaces/default/pods/a%2Fb%2fc?fieldSelector=metadata.name%3Dx&limit=5",
			"/api/v1/namespaces/default/services/https:x:443/proxy/a//b/../c;d=e?x=%zz&y&&z=+%20",
			`/apis/"odd"/[v1]/{x}|^~/%41%c3%A4ä?q="[]"{}|^ä`,
			"//double/slash", "/", "/a/.", "/a/..", "/%2e%2e/x", "/x?",
		} {
			path, query, _ := strings.Cut(target, "?")
			r := &api.Request{Method: "GET", Path: path, RawPath: path, RawQuery: query, RemoteAddr: "@"}
			resp := c.Forward(testContext(t), r, Credentials{})
			if finish(t, resp); resp.Status != 200 {
				t.Errorf("%s: status %d: %s", target, resp.Status, resp.Body)
				continue
			}
			seen := strings.TrimPrefix(s.last(t).RequestURI, s.URL)
			if want := strings.TrimSuffix(target, "?"); seen != want {
				t.Errorf("%s arrived as %s", want, seen)
			}
			if host := s.last(t).Host; "https://"+host != s.URL {
				t.Errorf("Host %q", host)
			}
		}
	})
}

func TestPathPrefix(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	c := s.client(t, func(o *Options) { o.Config.Host += "/k8s/clusters/c%201/" })
	forward := func(path, raw string) int {
		return c.Forward(testContext(t), &api.Request{Method: "GET", Path: path, RawPath: raw}, Credentials{As: AsGateway}).Status
	}
	if status := forward("/api/v1/a/b", "/api/v1/a%2Fb"); status != 200 || s.last(t).RequestURI != "/k8s/clusters/c%201/api/v1/a%2Fb" {
		t.Errorf("status %d, path %s", status, s.last(t).RequestURI)
	}
	n := s.count()
	for path, raw := range map[string]string{"/../x": "/../x", "/a/../../x": "/a/%2e%2e/%2E./x", "/..": "/..", "/./x": "/./x"} {
		if status := forward(path, raw); status != 400 {
			t.Errorf("%s: status %d", raw, status)
		}
	}
	if s.count() != n {
		t.Error("a request left its prefix")
	}
}

func TestBodiesAreStreamed(t *testing.T) {
	size := int64(soak.Cases(2<<20, 8<<20))
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("length") {
				w.Header().Set("Content-Length", r.Header.Get("Content-Length"))
			}
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
		}, options...)
		c := s.client(t)
		for _, known := range []bool{true, false} {
			content := bytes.Repeat([]byte("0123456789abcdef"), int(size/16))
			r := withBody(request("POST", "/api/v1/namespaces?length"), string(content))
			if !known {
				r = request("POST", "/api/v1/namespaces")
				r.Body, r.ContentLength = io.LimitReader(bytes.NewReader(content), size), -1
			}
			resp := c.Forward(testContext(t), r, Credentials{})
			if resp.BodyTo == nil || known && resp.Length != size || !known && resp.Length != -1 {
				t.Errorf("known %v: length %d, BodyTo %v", known, resp.Length, resp.BodyTo)
			}
			if finish(t, resp) != string(content) {
				t.Errorf("known %v: the body changed on its way", known)
			}
			seen := s.last(t)
			if got := seen.ContentLength; known && got != size || !known && got != -1 {
				t.Errorf("known %v: the upstream saw the length %d", known, got)
			}
		}
	})
}

// TestLengthsOfEmptyRequests: the upstream sees the right lengths of requests without bodies, which
// some servers read differently.
func TestLengthsOfEmptyRequests(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(http.ResponseWriter, *http.Request) {}, options...)
		c := s.client(t)
		for _, method := range []string{"GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS"} {
			finish(t, c.Forward(testContext(t), request(method, "/"), Credentials{}))
			if seen := s.last(t); seen.ContentLength != 0 || len(seen.TransferEncoding) != 0 || seen.Method != method {
				t.Errorf("%s: %s, length %d, %q", method, seen.Method, seen.ContentLength, seen.TransferEncoding)
			}
		}
	})
}

func TestResponsesAsTheyAre(t *testing.T) {
	gzipped := "\x1f\x8b pretend"
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/redirect":
				http.Redirect(w, r, "https://elsewhere.example/x", http.StatusTemporaryRedirect)
			case "/gzip":
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, gzipped)
			case "/unchanged":
				w.Header().Set("ETag", `"e"`)
				w.WriteHeader(http.StatusNotModified)
			case "/head":
				w.Header().Set("Content-Length", "123456")
			case "/teapot":
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, "short and stout")
			case "/created":
				w.WriteHeader(http.StatusCreated)
			}
		}, options...)
		c := s.client(t)
		for _, tt := range []struct {
			method, path string
			status       int
			header, body string
		}{
			{"GET", "/redirect", 307, "Location: https://elsewhere.example/x", "<a href"},
			{"POST", "/redirect", 307, "Location: https://elsewhere.example/x", ""},
			{"GET", "/gzip", 200, "Content-Encoding: gzip", gzipped},
			{"GET", "/unchanged", 304, `Etag: "e"`, ""},
			{"HEAD", "/head", 200, "Content-Length: 123456", ""},
			{"GET", "/teapot", 418, "", "short and stout"},
			{"PUT", "/created", 201, "", ""},
		} {
			resp := c.Forward(testContext(t), request(tt.method, tt.path), Credentials{})
			body := finish(t, resp)
			name, value, _ := strings.Cut(tt.header, ": ")
			if resp.Status != tt.status || !strings.HasPrefix(body, tt.body) || name != "" && resp.Header.Get(name) != value {
				t.Errorf("%s %s: %d %+v %q", tt.method, tt.path, resp.Status, resp.Header, body)
			}
		}
		if seen := s.last(t); seen.Header.Get("Accept-Encoding") != "" {
			t.Errorf("Accept-Encoding %q was made up", seen.Header.Get("Accept-Encoding"))
		}
	})
}

// TestShortResponses come with a length, also when the upstream did not tell it.
func TestShortResponses(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			size, _ := strconv.Atoi(r.URL.RawQuery)
			_, _ = io.WriteString(w, strings.Repeat("x", size/2))
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, strings.Repeat("x", size-size/2))
		}, options...)
		c := s.client(t)
		for _, size := range []int{1, 6000, copyBuffer - 1, copyBuffer, copyBuffer + 1, 5 * copyBuffer} {
			resp := c.Forward(testContext(t), request("GET", fmt.Sprintf("/api/v1/pods?%d", size)), Credentials{})
			if short := size < copyBuffer; size != copyBuffer && short != (resp.BodyTo == nil) || short && resp.Length != int64(size) {
				t.Errorf("%d bytes: length %d, BodyTo %v", size, resp.Length, resp.BodyTo)
			}
			if got := len(finish(t, resp)); got != size {
				t.Errorf("%d bytes, want %d", got, size)
			}
		}
	})
}

// TestTruncatedResponses: none may look whole.
func TestTruncatedResponses(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if length := r.URL.Query().Get("length"); length != "" {
				w.Header().Set("Content-Length", length)
			}
			_, _ = io.WriteString(w, "only this")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, options...)
		c := s.client(t)
		for target, status := range map[string]int{
			"/api/v1/pods?length=100000":                      200, // the head was passed on
			"/api/v1/pods":                                    503, // nothing was passed on
			"/api/v1/pods?length=100":                         503,
			"/api/v1/pods?watch=1":                            200,
			"/api/v1/namespaces/n/pods/p/log?follow=true":     200,
			"/api/v1/namespaces/n/pods/p/log":                 200,
			"/api/v1/namespaces/n/services/s/proxy/path":      200,
			"/api/v1/namespaces/n/pods/p/log?length=10000000": 200,
		} {
			resp := c.Forward(testContext(t), request("GET", target), Credentials{})
			_, err := tryFinish(resp)
			if resp.Status != status || (err == nil) != (status == 503) {
				t.Errorf("%s: status %d, error %v", target, resp.Status, err)
			}
		}
		resp := c.Forward(testContext(t), withBody(request("POST", "/api/v1/pods?length=100"), "{}"), Credentials{})
		if body := finish(t, resp); resp.Status != 503 || !strings.Contains(body, "the status of the response was 200") {
			t.Errorf("POST: %d %s", resp.Status, body)
		}
	})
}

// TestWritesAreSentOnce has the upstream drop connections at every awkward moment.
func TestWritesAreSentOnce(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		var drop atomic.Bool
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if drop.Load() {
				panic(http.ErrAbortHandler)
			}
		}, options...)
		c := s.client(t)
		for _, r := range []*api.Request{
			withBody(request("POST", "/api/v1/namespaces"), "{}"),
			withBody(request("PATCH", "/api/v1/namespaces/a"), "{}"),
			request("DELETE", "/api/v1/namespaces/a"),
			request("DELETE", "/api/v1/namespaces/a", "Idempotency-Key", "1"),
			request("POST", "/api/v1/namespaces/a", "X-Idempotency-Key", "1"),
		} {
			drop.Store(false)
			finish(t, c.Forward(testContext(t), request("GET", "/"), Credentials{})) // a pooled connection
			n := s.countWrites()
			drop.Store(true)
			resp := c.Forward(testContext(t), r, Credentials{})
			if body := finish(t, resp); resp.Status != 503 || !strings.Contains(body, "it is not known whether the request was applied") {
				t.Errorf("%s: status %d: %s", r.Method, resp.Status, body)
			}
			if got := s.countWrites() - n; got != 1 {
				t.Errorf("%s %v was sent %d times", r.Method, r.Header, got)
			}
		}
	})
}

// TestReadsSurviveDeadPooledConnections: the server closes idle connections
// behind the client's back.
func TestReadsSurviveDeadPooledConnections(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") }, options...)
		c := s.client(t)
		for range 20 {
			resp := c.Forward(testContext(t), request("GET", "/"), Credentials{})
			if body := finish(t, resp); resp.Status != 200 || body != "ok" {
				t.Fatalf("status %d: %s", resp.Status, body)
			}
			s.CloseClientConnections()
		}
	})
}

func TestUnreachableUpstream(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	c := s.client(t)
	s.Close()
	for _, r := range []*api.Request{request("GET", "/api/v1/pods"), withBody(request("POST", "/api/v1/pods"), "{}"), request("GET", "/", "Connection", "Upgrade", "Upgrade", "x")} {
		resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
		body := finish(t, resp)
		if resp.Status != 503 || !strings.Contains(body, `"reason":"ServiceUnavailable"`) || !strings.Contains(body, "connection refused") {
			t.Errorf("%s: %d %s", r.Method, resp.Status, body)
		}
		if strings.Contains(body, "127.0.0.1") || strings.Contains(body, "not known") {
			t.Errorf("%s: %s", r.Method, body)
		}
		if resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%+v", resp.Header)
		}
	}
}

func TestSlowUpstream(t *testing.T) {
	t.Parallel() // it waits for timeouts
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		release := make(chan struct{})
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("head") {
				w.Header().Set("Content-Length", "100000")
				_, _ = io.WriteString(w, "a beginning")
				w.(http.Flusher).Flush()
			}
			<-release
		}, options...)
		c := s.client(t, func(o *Options) { o.Limits.RequestTimeout = time.Second })
		defer close(release)
		resp := c.Forward(testContext(t), withBody(request("PUT", "/api/v1/nodes/n"), "{}"), Credentials{})
		if body := finish(t, resp); resp.Status != 504 || !strings.Contains(body, "not known whether") || !strings.Contains(body, `"reason":"Timeout"`) {
			t.Errorf("%d %s", resp.Status, body)
		}
		c = s.client(t, func(o *Options) { o.Limits.StallTimeout = 50 * time.Millisecond })
		resp = c.Forward(testContext(t), request("GET", "/api/v1/nodes?head"), Credentials{})
		if _, err := tryFinish(resp); !errors.Is(err, health.ErrStalled) {
			t.Errorf("a body that stands still ends with %v", err)
		}
	})
}

// TestClientLeaves cancels in each phase: the upstream must learn of it.
func TestClientLeaves(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("head") {
				w.Header().Set("Content-Length", "100000")
				w.(http.Flusher).Flush()
			}
			arrived <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		}, options...)
		c := s.client(t)

		ctx, leave := context.WithCancel(testContext(t))
		done := make(chan *api.Response, 1)
		go func() { done <- c.Forward(ctx, request("GET", "/api/v1/pods"), Credentials{}) }()
		within(t, arrived, "the request")
		leave()
		within(t, gone, "the cancellation before the head")
		if resp := within(t, done, "the response"); resp.Status != api.StatusClientLeft || len(resp.Body) > 0 {
			t.Errorf("%d %s", resp.Status, resp.Body)
		}

		ctx, leave = context.WithCancel(testContext(t))
		resp := c.Forward(ctx, request("GET", "/api/v1/pods?head"), Credentials{})
		within(t, arrived, "the request")
		leave()
		if _, err := tryFinish(resp); !errors.Is(err, context.Canceled) {
			t.Errorf("the body ends with %v", err)
		}
		within(t, gone, "the cancellation in the body")

		resp = c.Forward(testContext(t), request("GET", "/api/v1/pods?head"), Credentials{})
		within(t, arrived, "the request")
		resp.Done(0, io.ErrClosedPipe) // the client's connection broke
		within(t, gone, "the cancellation by Done")
	})
}

func TestClientBodyFails(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		whole := make(chan bool, 1)
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" { // and not a probe
				_, err := io.ReadAll(r.Body)
				whole <- err == nil
			}
		}, options...)
		c := s.client(t)
		for _, length := range []int64{100, smallUpload + 1, -1} {
			r := request("POST", "/api/v1/pods")
			r.Body, r.ContentLength = io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("client is gone"))), length
			resp := c.Forward(testContext(t), r, Credentials{})
			if body := finish(t, resp); resp.Status != 400 || !strings.Contains(body, "body could not be read") {
				t.Errorf("length %d: %d %s", length, resp.Status, body)
			}
			if length == 100 {
				continue // a small body is read before anything is sent
			}
			if within(t, whole, "the request") {
				t.Errorf("length %d: the upstream took half a body for a whole", length)
			}
		}
	})
}

// TestSmallBody: it is sent with its head, whole or not at all, and a client that
// does not send it has as much time as an upstream that does not answer.
func TestSmallBody(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) == "slow" {
				<-r.Context().Done() // the timeout, however busy the machine is
				// A response could still arrive while the client closes the connection.
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(body)
		}, options...)
		c := s.client(t)
		for _, body := range []struct {
			r      io.Reader
			status int
		}{
			{strings.NewReader("whole"), 200},
			{iotest.OneByteReader(strings.NewReader("whole")), 200},
			{iotest.DataErrReader(strings.NewReader("whole")), 200},
			{strings.NewReader("half"), 400},
		} {
			r := request("POST", "/api/v1/pods")
			r.Body, r.ContentLength = body.r, int64(len("whole"))
			resp := c.Forward(testContext(t), r, Credentials{})
			if got := finish(t, resp); resp.Status != body.status || body.status == 200 && got != "whole" {
				t.Errorf("%d %s, want %d", resp.Status, got, body.status)
			}
		}
		c.limits.RequestTimeout = time.Nanosecond
		r := request("POST", "/api/v1/pods")
		r.Body, r.ContentLength = iotest.OneByteReader(strings.NewReader("slow")), int64(len("slow"))
		if resp := c.Forward(testContext(t), r, Credentials{}); resp.Status != 504 {
			t.Errorf("a slow body: %d", resp.Status)
		}
	})
}

// TestEarlyResponse: the upstream refuses while the client is still sending.
func TestEarlyResponse(t *testing.T) {
	t.Parallel() // it waits for the end of an upload
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "too large")
		}, options...)
		c := s.client(t)
		reader, writer := io.Pipe()
		defer writer.Close()
		r := request("POST", "/api/v1/pods")
		r.Body, r.ContentLength = reader, 1<<30
		resp := c.Forward(testContext(t), r, Credentials{})
		if body := finish(t, resp); resp.Status != 413 || body != "too large" {
			t.Errorf("%d %s", resp.Status, body)
		}
	})
}

// TestBodyIsNotReadAfterwards: a request's body belongs to the edge again when the
// response is done.
func TestBodyIsNotReadAfterwards(t *testing.T) {
	t.Parallel() // it waits for the end of an upload
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})
	c := s.client(t)
	var over atomic.Bool
	reads := make(chan struct{})
	r := request("POST", "/api/v1/pods")
	r.ContentLength = 1 << 30
	r.Body = readerFunc(func(p []byte) (int, error) {
		if over.Load() {
			t.Error("the body is read when the request is over")
		}
		<-reads
		return len(p), nil
	})
	resp := c.Forward(testContext(t), r, Credentials{})
	finish(t, resp)
	over.Store(true)
	close(reads)
	c.Close()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestUpstreamDiesUnderLoad kills the upstream's connections while many requests
// are under way: each must end, whole or with an error.
func TestUpstreamDiesUnderLoad(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		size := soak.Cases(1<<18, 1<<20)
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		}, options...)
		c := s.client(t)
		results := make(chan error, 64)
		for range cap(results) {
			go func() {
				resp := c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{})
				body, err := tryFinish(resp)
				if err == nil && resp.Status == 200 && len(body) != size {
					err = fmt.Errorf("%d bytes pass for whole", len(body))
				} else {
					err = nil
				}
				results <- err
			}()
		}
		for i := range cap(results) {
			if i%8 == 0 {
				s.CloseClientConnections()
			}
			if err := within(t, results, "a response"); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCloseEndsAll: nothing survives the client.
func TestCloseEndsAll(t *testing.T) {
	arrived := make(chan struct{}, 3)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			w.(http.Flusher).Flush()
		}
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	c := s.client(t)
	responses := make(chan *api.Response, 1)
	go func() { responses <- c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{}) }()
	watch := c.Forward(testContext(t), request("GET", "/api/v1/pods?watch=1"), Credentials{})
	w := newRecorder()
	watch.Stream.Start(w)
	for range 2 {
		within(t, arrived, "a request")
	}
	c.Close()
	if resp := within(t, responses, "the answer"); resp.Status != 503 {
		t.Errorf("status %d", resp.Status)
	}
	within(t, w.ended, "the end of the watch")
	if !w.aborted {
		t.Error("the watch ended as if the upstream had ended it")
	}
	watch.Stream.Stop()
	if resp := c.Forward(testContext(t), request("GET", "/"), Credentials{}); resp.Status != 503 {
		t.Errorf("after Close: status %d", resp.Status)
	}
}

func TestPlainHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.RequestURI })}
	go func() { _ = srv.Serve(listener) }()
	defer srv.Close()
	c, err := New(Options{Config: &rest.Config{Host: "http://" + listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if resp := c.Forward(testContext(t), request("GET", "/api?x=y"), Credentials{As: AsGateway}); resp.Status != 200 {
		t.Errorf("status %d: %s", resp.Status, resp.Body)
	}
	if got := within(t, seen, "the request"); got != "/api?x=y" {
		t.Errorf("path %q", got)
	}
}
