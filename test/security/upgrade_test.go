package security

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestUpgradeDoesNotBeginBeforeTheBodyHasEnded checks that the gateway does not accept an upgrade
// while the request's body is incomplete, even if the upstream does. Otherwise the forwarded body
// and the upgraded connection would read from the client's connection concurrently.
func TestUpgradeDoesNotBeginBeforeTheBodyHasEnded(t *testing.T) {
	g := startGateway(t)
	deadline(t, time.Minute)
	for length, want := range map[int]int{0: 101, 1 << 20: 400} {
		conn := dial(t, g.URL(), nil, "http/1.1")
		head := fmt.Sprintf("GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: x\r\nOrigin: https://x\r\nAuthorization: Bearer %s\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
			"Content-Length: %d\r\n\r\n", kube.AdminToken(), length)
		must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err := io.WriteString(conn, head+strings.Repeat("x", length/8))
		must(t, err)
		line := make([]byte, len("HTTP/1.1 101"))
		_, err = io.ReadFull(conn, line)
		must(t, err)
		if got := string(line); got != fmt.Sprint("HTTP/1.1 ", want) {
			t.Errorf("body of %d bytes: %s, want %d", length, got, want)
		}
	}
}

// TestClosedWindowDoesNotHoldRejectedStreams checks that a client that never opens its flow-control
// window does not hold streams that the transport itself rejects.
func TestClosedWindowDoesNotHoldRejectedStreams(t *testing.T) {
	g := startGateway(t, "--write-timeout", "1s")
	deadline(t, time.Minute)
	c := dialFrames(t, g.URL(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	ids := map[uint32]bool{c.request("GET", "/api", "", false, "connection", "close"): true, c.request("GET", "/api", "", false, "te", "gzip"): true}
	for len(ids) > 0 {
		if !c.until(func(frame http2.Frame) bool {
			_, reset := frame.(*http2.RSTStreamFrame)
			if reset {
				delete(ids, frame.Header().StreamID)
			}
			return reset
		}) {
			t.Fatalf("the connection ended before %d streams", len(ids))
		}
	}
}
