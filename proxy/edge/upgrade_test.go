package edge_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

func TestUpgrade(t *testing.T) {
	done := make(chan edgetest.DoneCall, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		resp := edgetest.WebSocketEcho(r.Header.Get("Sec-Websocket-Key"))
		resp.Done = func(n int64, err error) { done <- edgetest.DoneCall{N: n, Err: err} }
		return resp
	})
	request := "GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abc\r\n\r\n"
	for name, c := range map[string]*edgetest.RawConn{"plain": ts.Dial(), "tls": ts.DialTLS()} {
		t.Run(name, func(t *testing.T) {
			// The first frame comes with the request, before the answer.
			c.Send("%s%s", request, edgetest.MaskedFrame(1, "early"))
			resp := c.Head("GET")
			if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != edgetest.AcceptKey("abc") {
				t.Fatalf("got %v", resp)
			}
			c.Expect("\x81\x05early")
			for i := range 100 {
				text := strings.Repeat("x", i)
				c.Send("%s", edgetest.MaskedFrame(1, text))
				c.Expect("\x81" + string(rune(i)) + text)
			}
			c.Send("%s", edgetest.MaskedFrame(8, string(binary.BigEndian.AppendUint16(nil, 1000))))
			c.Expect("\x88\x02\x03\xe8")
			c.Ended()
			if d := edgetest.Receive(t, done, "Done"); d.Err != nil || d.N < 5000 {
				t.Errorf("done %v", d)
			}
		})
	}
	t.Run("client leaves", func(t *testing.T) {
		c := ts.Dial()
		c.Send("%s", request)
		c.Head("GET")
		_ = c.Close()
		edgetest.Receive(t, done, "Done")
	})
	t.Run("not asked for", func(t *testing.T) {
		c := ts.Dial()
		c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, body := c.Response("GET"); resp.StatusCode != 500 || !strings.Contains(body, "InternalError") {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
		if d := edgetest.Receive(t, done, "Done"); d.Err == nil {
			t.Error("Done knows no error")
		}
		resp, err := ts.Client(true).Get("https://" + ts.Secure)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if d := edgetest.Receive(t, done, "Done"); resp.StatusCode != 500 || d.Err == nil {
			t.Errorf("got %d, done %v", resp.StatusCode, d)
		}
	})
}

// TestUpgradeHalfClose ends one direction and goes on with the other.
func TestUpgradeHalfClose(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Upgrade: func(nc net.Conn) {
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		}}
	})
	for _, c := range []*edgetest.RawConn{ts.Dial(), ts.DialTLS()} {
		c.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		c.Head("GET")
		c.Ended()
		c.Send("more")
	}
}

// TestUpgradeBeforeTheBody upgrades a request whose body is still being read, as an
// upstream may agree to before it has all of it. Two must never read the connection.
func TestUpgradeBeforeTheBody(t *testing.T) {
	done := make(chan edgetest.DoneCall, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		first := make(chan struct{})
		go func() {
			buf := make([]byte, 100)
			_, _ = r.Body.Read(buf)
			close(first)
			for err := error(nil); err == nil; {
				_, err = r.Body.Read(buf)
			}
		}()
		<-first
		return &api.Response{
			Upgrade: func(nc net.Conn) {
				_, _ = io.Copy(io.Discard, nc)
			},
			Done: func(n int64, err error) { done <- edgetest.DoneCall{N: n, Err: err} },
		}
	})
	for name, c := range map[string]*edgetest.RawConn{"plain": ts.Dial(), "tls": ts.DialTLS()} {
		t.Run(name, func(t *testing.T) {
			c.Send("GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 50_000))
			if resp, body := c.Response("GET"); resp.StatusCode != 400 || !strings.Contains(body, "BadRequest") {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
			if d := edgetest.Receive(t, done, "Done"); d.Err == nil {
				t.Error("Done knows no error")
			}
		})
	}
	t.Run("afterwards", func(t *testing.T) {
		ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
			_, _ = io.Copy(io.Discard, r.Body)
			return &api.Response{Upgrade: func(nc net.Conn) {
				_, _ = io.Copy(nc, io.LimitReader(nc, 4))
			}}
		})
		c := ts.DialTLS()
		c.Send("POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\nbodyecho")
		if resp := c.Head("POST"); resp.StatusCode != 101 {
			t.Fatalf("got %v", resp)
		}
		c.Expect("echo")
	})
}
