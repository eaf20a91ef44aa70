package security

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// socket is a watch over a WebSocket whose client can send anything.
type socket struct {
	io.Writer
	r *bufio.Reader
}

// watchPath is the path of a watch without events.
const watchPath = "/api/v1/namespaces?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dnone"

// openSocket opens a socket over HTTP/1.1.
func openSocket(t *testing.T, url string) *socket {
	t.Helper()
	conn := dial(t, url, nil, "http/1.1")
	s := &socket{Writer: conn, r: bufio.NewReader(conn)}
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := fmt.Fprintf(s, "GET %s HTTP/1.1\r\nHost: x\r\nOrigin: https://x\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", watchPath, kube.AdminToken())
	must(t, err)
	resp, err := http.ReadResponse(s.r, nil)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return s
}

// openTunnel opens a socket over HTTP/2 (RFC 8441).
func openTunnel(t *testing.T, url string) *socket {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, url+watchPath, r)
	must(t, err)
	req.Header = http.Header{
		":protocol": {"websocket"}, "Origin": {"https://x"}, "Sec-Websocket-Version": {"13"}, "Authorization": {"Bearer " + kube.AdminToken()},
	}
	//lint:ignore SA1019 net/http sends no :protocol.
	conn, err := (&http2.Transport{}).NewClientConn(dial(t, url, nil, "h2"))
	must(t, err)
	resp, err := conn.RoundTrip(req)
	must(t, err)
	t.Cleanup(func() {
		_ = w.Close()
		_ = resp.Body.Close()
		_ = conn.Close()
	})
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("%s %s", resp.Proto, resp.Status)
	}
	return &socket{Writer: w, r: bufio.NewReader(resp.Body)}
}

// flood sends what repeatedly until the connection fails.
func (s *socket) flood(what string) {
	many := strings.Repeat(what, 1+(16<<10)/len(what))
	for {
		if _, err := io.WriteString(s, many); err != nil {
			return
		}
	}
}

// closed reads until the gateway's close frame, and closes the connection.
func (s *socket) closed() (code int, pongs int, err error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(s.r, head[:]); err != nil {
			return 0, pongs, err
		}
		payload := make([]byte, head[1])
		if _, err := io.ReadFull(s.r, payload); err != nil {
			return 0, pongs, err
		}
		switch head[0] {
		case 0x8a:
			pongs++
		case 0x88:
			if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
				return 0, pongs, fmt.Errorf("after the close frame: %w", err)
			}
			return int(binary.BigEndian.Uint16(payload)), pongs, nil
		}
	}
}

// TestHostileWebSockets checks that a client of a WebSocket watch that sends frames, of any length
// and without end, ends only its own watch and takes neither memory nor goroutines. The gateway
// ignores the contents of frames, because clients of a watch have nothing to send.
func TestHostileWebSockets(t *testing.T) {
	g := startGateway(t)
	ctx := deadline(t, 2*time.Minute)
	const mask = "\x00\x00\x00\x00"
	garbage := make([]byte, 8<<10)
	for i := range garbage {
		garbage[i] = byte(rand.Uint32())
	}
	before := metricOf(ctx, t, g, "go_memstats_heap_inuse_bytes")
	for name, c := range map[string]struct {
		sends string
		flood bool // send repeatedly
		want  int  // 0 means any
	}{
		"a frame without a mask":      {sends: "\x81\x02hi", want: 1002},
		"a frame of 8 EiB":            {sends: "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + mask, want: 1000},
		"a frame a byte too large":    {sends: "\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01" + mask, want: 1000},
		"a ping of 8 EiB":             {sends: "\x89\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + mask + strings.Repeat("x", 64<<20), want: 1008},
		"fragments without end":       {sends: "\x01\x80" + mask + "\x00\x81" + mask + "x", flood: true, want: 1008},
		"pings":                       {sends: "\x89\x84" + mask + "ping", flood: true, want: 1008},
		"empty messages":              {sends: "\x81\x80" + mask, flood: true, want: 1008},
		"large messages":              {sends: "\x82\xff\x00\x00\x00\x00\x00\x0f\x00\x00" + mask + strings.Repeat("x", 0xf0000), flood: true, want: 1008},
		"garbage":                     {sends: string(garbage), flood: true},
		"a goodbye, and no departure": {sends: "\x88\x80" + mask, want: 1000},
	} {
		hostile := func(t *testing.T, s *socket) {
			if c.flood {
				go s.flood(c.sends)
			} else {
				go func() { _, _ = io.WriteString(s, c.sends) }()
			}
			code, pongs, err := s.closed()
			if c.flood || len(c.sends) > 1<<20 {
				// A client that is still sending may find the connection reset before it has read the last
				// frame.
				var reset http2.StreamError
				if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &reset) && !strings.Contains(err.Error(), "reset") {
					t.Error(err)
				}
			} else if err != nil || code != c.want {
				t.Errorf("close code %d, %v; want %d", code, err, c.want)
			}
			if err == nil && c.want != 0 && code != c.want {
				t.Errorf("close code %d, want %d", code, c.want)
			}
			if pongs > 40_000 {
				t.Errorf("got %d pongs", pongs)
			}
		}
		t.Run(name, func(t *testing.T) { hostile(t, openSocket(t, g.URL())) })
		t.Run(name+", HTTP/2", func(t *testing.T) { hostile(t, openTunnel(t, g.URL())) })
	}
	eventually(ctx, t, func() error {
		if n := metricOf(ctx, t, g, "kubeweir_watches_open"); n > 0 {
			return fmt.Errorf("%v watches are open", n)
		}
		return nil
	})
	if after := metricOf(ctx, t, g, "go_memstats_heap_inuse_bytes"); after > before+32<<20 {
		t.Errorf("the heap grew from %.0f MB to %.0f MB", before/1e6, after/1e6)
	}
	if g.Panicked() {
		t.Errorf("the gateway panicked:\n%s", g.Log())
	}
}
