package upstream

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// length is a whole response with a body of known length.
func length(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestHTTP1KeepsResponsesApart checks that no request gets what a server sends beyond its response,
// even in the same TLS record.
func TestHTTP1KeepsResponsesApart(t *testing.T) {
	body := strings.Repeat("x", 9000) // the rest of which is read past the buffer
	var first atomic.Bool
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if first.Swap(true) {
			_, _ = io.WriteString(w, "mine")
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, length(body)+length("somebody else's"))
	}, func(s *httptest.Server) { s.TLS.DynamicRecordSizingDisabled = true })
	c := s.client(t)
	for _, want := range []string{body, "mine"} {
		resp := c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{})
		if got := finish(t, resp); got != want {
			t.Errorf("got %d bytes: %.40s", len(got), got)
		}
	}
}

// TestHTTP1ReusesTLS: looking at an idle connection does not harm it.
func TestHTTP1ReusesTLS(t *testing.T) {
	var opened atomic.Int64
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 9000)) }, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
	})
	c := s.client(t)
	for range 10 {
		if body := finish(t, c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{})); len(body) != 9000 {
			t.Fatalf("%d bytes", len(body))
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for ten requests", n)
	}
}
