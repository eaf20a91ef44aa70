package edge_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/rejectiontest"
)

// TestRejectionsAreCounted has a request of HTTP/1.1 for each reason for which this package refuses one.
func TestRejectionsAreCounted(t *testing.T) {
	const end = "Host: x\r\n\r\n"
	for why, c := range map[reason.Rejection]struct{ send, message string }{
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
			ts := edgetest.Start(t, edgetest.ServeRejected)
			c1 := ts.Dial()
			c1.Send("%s", c.send)
			resp, body := c1.Response("GET")
			rejectiontest.Check(t, ts.Registry, why, c.message, rejectiontest.Response{
				Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), RetryAfter: resp.Header.Get("Retry-After"), Body: body,
			})
		})
	}
}

// TestRejectionsOverHTTP2AreCounted has one of HTTP/2 for each for which such a request is refused.
func TestRejectionsOverHTTP2AreCounted(t *testing.T) {
	for why, c := range map[reason.Rejection]struct {
		send    func(*edgetest.FrameConn) uint32
		message string
	}{
		reason.TunnelProtocol: {func(f *edgetest.FrameConn) uint32 { return f.Request("CONNECT", "/", true, ":protocol", "connect-udp") }, "501 Not Implemented"},
		reason.NotUpgraded:    {func(f *edgetest.FrameConn) uint32 { return f.Tunnel("/list", "origin", "https://x") }, "WebSocket"},
		reason.Panicked:       {func(f *edgetest.FrameConn) uint32 { return f.Request("GET", "/panic", false) }, "this request caused a panic"},
		reason.NoResponse:     {func(f *edgetest.FrameConn) uint32 { return f.Request("GET", "/nil", false) }, "the handler gave no response"},
		reason.HeaderTooLarge: {func(f *edgetest.FrameConn) uint32 {
			var large []string
			for range 7 {
				large = append(large, "a", strings.Repeat("x", 10<<10))
			}
			return f.RequestInFrames("GET", "/", large...)
		}, "431 Request Header Fields Too Large"},
	} {
		t.Run(why.String(), func(t *testing.T) {
			ts := edgetest.Start(t, edgetest.ServeRejected)
			f := ts.DialFrames()
			id := c.send(f)
			header := f.Respond(id)
			code, err := strconv.Atoi(header[":status"])
			if err != nil {
				t.Fatal(err)
			}
			rejectiontest.Check(t, ts.Registry, why, c.message, rejectiontest.Response{
				Code: code, ContentType: header["content-type"], RetryAfter: header["retry-after"], Body: f.Rest(id),
			})
		})
	}
}
