package edge

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/refusaltest"
	"github.com/kubeweir/kubeweir/reason"
)

// serveRefused is a handler of what becomes a refusal.
func serveRefused(_ context.Context, r *api.Request) *api.Response {
	switch r.Path {
	case "/panic":
		panic("at a request")
	case "/list":
		return text("list")
	case "/exec": // is upgraded while its body is being read
		begun := make(chan struct{})
		go func() {
			_, _ = r.Body.Read(make([]byte, 100))
			close(begun)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		<-begun
		return &api.Response{Upgrade: func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }}
	}
	return nil
}

// TestRefusalsAreCounted has a request of HTTP/1.1 for each reason for which this package refuses one.
func TestRefusalsAreCounted(t *testing.T) {
	const end = "Host: x\r\n\r\n"
	for why, c := range map[reason.Refusal]struct{ send, says string }{
		reason.Malformed:       {"GET / HTTP/1.1\nHost: x\n\n", "400 Bad Request"},
		reason.HeaderTooLarge:  {"GET / HTTP/1.1\r\nA: " + strings.Repeat("b", 100<<10) + "\r\n" + end, "431 Request Header Fields Too Large"},
		reason.Expectation:     {"GET / HTTP/1.1\r\nExpect: magic\r\n" + end, "417 Expectation Failed"},
		reason.ProtocolVersion: {"GET / HTTP/3.1\r\n" + end, "505 HTTP Version Not Supported"},
		reason.Panicked:        {"GET /panic HTTP/1.1\r\n" + end, "this request caused a panic"},
		reason.NoResponse:      {"GET /nil HTTP/1.1\r\n" + end, "the handler gave no response"},
		reason.EarlyUpgrade: {"GET /exec HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1000000\r\n" + end + strings.Repeat("x", 50_000),
			"before the request's body has been sent"},
	} {
		t.Run(why.String(), func(t *testing.T) {
			ts := startServer(t, serveRefused)
			c1 := ts.dial()
			c1.send("%s", c.send)
			resp, body := c1.response("GET")
			refusaltest.Check(t, ts.registry, why, c.says, refusaltest.Answer{
				Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), RetryAfter: resp.Header.Get("Retry-After"), Body: body,
			})
		})
	}
}

// TestRefusalsOverHTTP2AreCounted has one of HTTP/2 for each for which such a request is refused.
func TestRefusalsOverHTTP2AreCounted(t *testing.T) {
	for why, c := range map[reason.Refusal]struct {
		send func(*frameConn) uint32
		says string
	}{
		reason.TunnelProtocol: {func(f *frameConn) uint32 { return f.request("CONNECT", "/", true, ":protocol", "connect-udp") }, "501 Not Implemented"},
		reason.NotUpgraded:    {func(f *frameConn) uint32 { return f.tunnel("/list", "origin", "https://x") }, "WebSocket"},
		reason.Panicked:       {func(f *frameConn) uint32 { return f.request("GET", "/panic", false) }, "this request caused a panic"},
		reason.NoResponse:     {func(f *frameConn) uint32 { return f.request("GET", "/nil", false) }, "the handler gave no response"},
		reason.HeaderTooLarge: {func(f *frameConn) uint32 {
			var large []string
			for range 7 {
				large = append(large, "a", strings.Repeat("x", 10<<10))
			}
			return f.requestInFrames("GET", "/", large...)
		}, "431 Request Header Fields Too Large"},
	} {
		t.Run(why.String(), func(t *testing.T) {
			ts := startServer(t, serveRefused)
			f := ts.dialFrames()
			id := c.send(f)
			header := f.answer(id)
			code, err := strconv.Atoi(header[":status"])
			if err != nil {
				t.Fatal(err)
			}
			refusaltest.Check(t, ts.registry, why, c.says, refusaltest.Answer{
				Code: code, ContentType: header["content-type"], RetryAfter: header["retry-after"], Body: f.rest(id),
			})
		})
	}
}

// rest reads the rest of an answer's body.
func (f *frameConn) rest(id uint32) string {
	f.t.Helper()
	var body strings.Builder
	f.until(func(frame http2.Frame) bool {
		data, ok := frame.(*http2.DataFrame)
		if !ok || data.StreamID != id {
			return false
		}
		body.Write(data.Data())
		return data.StreamEnded()
	})
	return body.String()
}
