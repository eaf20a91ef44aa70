package edge

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/api"
)

// acceptKey is Sec-WebSocket-Accept (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// webSocketEcho answers every text frame of a client with the same text.
func webSocketEcho(key string) *api.Response {
	return &api.Response{Status: 101, Header: switchTo(acceptKey(key)), Upgrade: func(nc net.Conn) {
		br := bufio.NewReader(nc)
		for {
			head := make([]byte, 6) // short masked frames only
			if _, err := io.ReadFull(br, head); err != nil {
				return
			}
			payload := make([]byte, head[1]&0x7f)
			if _, err := io.ReadFull(br, payload); err != nil {
				return
			}
			for i := range payload {
				payload[i] ^= head[2+i%4]
			}
			if _, err := nc.Write(append([]byte{head[0], byte(len(payload))}, payload...)); err != nil || head[0] == 0x88 {
				return
			}
		}
	}}
}

// switchTo is the header of a 101.
func switchTo(accept string) api.Header {
	return api.Header{{Name: "Upgrade", Value: "websocket"}, {Name: "Connection", Value: "Upgrade"}, {Name: "Sec-WebSocket-Accept", Value: accept}}
}

// maskedFrame is a client's frame.
func maskedFrame(opcode byte, payload string) string {
	mask := make([]byte, 4)
	_, _ = rand.Read(mask)
	b := append([]byte{0x80 | opcode, 0x80 | byte(len(payload))}, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}

func TestUpgrade(t *testing.T) {
	done := make(chan doneCall, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		resp := webSocketEcho(r.Header.Get("Sec-Websocket-Key"))
		resp.Done = func(n int64, err error) { done <- doneCall{n, err} }
		return resp
	})
	request := "GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abc\r\n\r\n"
	for name, c := range map[string]*rawConn{"plain": ts.dial(), "tls": ts.dialTLS()} {
		t.Run(name, func(t *testing.T) {
			// The first frame comes with the request, before the answer.
			c.send("%s%s", request, maskedFrame(1, "early"))
			resp := c.head("GET")
			if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != acceptKey("abc") {
				t.Fatalf("got %v", resp)
			}
			c.expect("\x81\x05early")
			for i := range 100 {
				text := strings.Repeat("x", i)
				c.send("%s", maskedFrame(1, text))
				c.expect("\x81" + string(rune(i)) + text)
			}
			c.send("%s", maskedFrame(8, string(binary.BigEndian.AppendUint16(nil, 1000))))
			c.expect("\x88\x02\x03\xe8")
			c.ended()
			if d := receive(t, done, "Done"); d.err != nil || d.n < 5000 {
				t.Errorf("done %v", d)
			}
		})
	}
	t.Run("client leaves", func(t *testing.T) {
		c := ts.dial()
		c.send("%s", request)
		c.head("GET")
		_ = c.Close()
		receive(t, done, "Done")
	})
	t.Run("not asked for", func(t *testing.T) {
		c := ts.dial()
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, body := c.response("GET"); resp.StatusCode != 500 || !strings.Contains(body, "InternalError") {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
		if d := receive(t, done, "Done"); d.err == nil {
			t.Error("Done knows no error")
		}
		resp, err := ts.client(true).Get("https://" + ts.secure)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if d := receive(t, done, "Done"); resp.StatusCode != 500 || d.err == nil {
			t.Errorf("got %d, done %v", resp.StatusCode, d)
		}
	})
}

// TestUpgradeHalfClose ends one direction and goes on with the other.
func TestUpgradeHalfClose(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Upgrade: func(nc net.Conn) {
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		}}
	})
	for _, c := range []*rawConn{ts.dial(), ts.dialTLS()} {
		c.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		c.head("GET")
		c.ended()
		c.send("more")
	}
}

// TestUpgradeBeforeTheBody upgrades a request whose body is still being read, as an
// upstream may agree to before it has all of it. Two must never read the connection.
func TestUpgradeBeforeTheBody(t *testing.T) {
	done := make(chan doneCall, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
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
			Done: func(n int64, err error) { done <- doneCall{n, err} },
		}
	})
	for name, c := range map[string]*rawConn{"plain": ts.dial(), "tls": ts.dialTLS()} {
		t.Run(name, func(t *testing.T) {
			c.send("GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 50_000))
			if resp, body := c.response("GET"); resp.StatusCode != 400 || !strings.Contains(body, "BadRequest") {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
			if d := receive(t, done, "Done"); d.err == nil {
				t.Error("Done knows no error")
			}
		})
	}
	t.Run("afterwards", func(t *testing.T) {
		ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
			_, _ = io.Copy(io.Discard, r.Body)
			return &api.Response{Upgrade: func(nc net.Conn) {
				_, _ = io.Copy(nc, io.LimitReader(nc, 4))
			}}
		})
		c := ts.dialTLS()
		c.send("POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\nbodyecho")
		if resp := c.head("POST"); resp.StatusCode != 101 {
			t.Fatalf("got %v", resp)
		}
		c.expect("echo")
	})
}
