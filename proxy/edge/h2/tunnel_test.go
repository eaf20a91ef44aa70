package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2AnnouncesTunnels: RFC 8441, 3.
func TestHTTP2AnnouncesTunnels(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("") })
	ts.DialFrames().Until(func(frame http2.Frame) bool {
		settings, ok := frame.(*http2.SettingsFrame)
		if ok {
			if v, ok := settings.Value(http2.SettingEnableConnectProtocol); !ok || v != 1 {
				t.Errorf("announced %v", v)
			}
		}
		return ok
	})
}

// TestHTTP2Upgrade is TestUpgrade over HTTP/2: the stream is what the connection is there.
func TestHTTP2Upgrade(t *testing.T) {
	ts, done := edgetest.StartUpgrades(t, func(nc net.Conn) {
		edgetest.WebSocketEcho("").Upgrade(nc)
		// Without, its return would be a reset unless the client's end had been read by then.
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	})
	c := ts.DialFrames()
	for range 3 {
		id := c.Tunnel("/exec")
		c.Write(id, edgetest.MaskedFrame(1, "early"), false)
		header := c.Respond(id)
		if _, accept := header["sec-websocket-accept"]; header[":status"] != "200" || accept {
			t.Fatalf("got %v", header)
		}
		c.Expect(id, "\x81\x05early")
		for i := range 100 {
			text := strings.Repeat("x", i)
			c.Write(id, edgetest.MaskedFrame(1, text), false)
			c.Expect(id, "\x81"+string(rune(i))+text)
		}
		c.Write(id, edgetest.MaskedFrame(8, string(binary.BigEndian.AppendUint16(nil, 1000))), true)
		c.Expect(id, "\x88\x02\x03\xe8")
		c.Until(edgetest.IsEnd(id))
		if d := edgetest.Receive(t, done, "Done"); d.Err != nil || d.N < 5000 {
			t.Errorf("done %v", d)
		}
	}
}

// TestHTTP2UpgradeEnds: how one side ends, and the other learns of it.
func TestHTTP2UpgradeEnds(t *testing.T) {
	result := make(chan error, 1)
	for name, test := range map[string]struct {
		serve  func(nc net.Conn)
		client func(c *edgetest.FrameConn, id uint32)
	}{
		"client ends": {
			func(nc net.Conn) {
				b, err := io.ReadAll(nc)
				_, _ = nc.Write(append(b, " and more"...))
				result <- errors.Join(err, nc.(interface{ CloseWrite() error }).CloseWrite())
			},
			func(c *edgetest.FrameConn, id uint32) {
				c.Write(id, "last", true)
				c.Expect(id, "last and more")
				c.Until(edgetest.IsEnd(id))
			},
		},
		"server ends": {
			func(nc net.Conn) {
				err := nc.(interface{ CloseWrite() error }).CloseWrite()
				_, readErr := io.ReadAll(nc)
				result <- errors.Join(err, readErr)
			},
			func(c *edgetest.FrameConn, id uint32) {
				c.Until(edgetest.IsEnd(id))
				c.Write(id, "more", true)
			},
		},
		"client resets": {
			func(nc net.Conn) {
				if _, err := io.ReadAll(nc); err == nil {
					result <- errors.New("a reset reads as an end")
					return
				}
				if _, err := nc.Write([]byte("x")); err == nil {
					result <- errors.New("written to a stream that is reset")
					return
				}
				result <- nil
			},
			func(c *edgetest.FrameConn, id uint32) { _ = c.WriteRSTStream(id, http2.ErrCodeCancel) },
		},
		"server resets": {
			func(nc net.Conn) { result <- nc.Close() },
			func(c *edgetest.FrameConn, id uint32) { c.ExpectReset(id, http2.ErrCodeCancel) },
		},
		"closed while it reads and writes": {
			func(nc net.Conn) {
				errs := make(chan error, 2)
				go func() {
					_, err := nc.Read(make([]byte, 1))
					errs <- err
				}()
				go func() {
					_, err := io.Copy(nc, zeros{})
					errs <- err
				}()
				_ = nc.Close()
				if first, second := <-errs, <-errs; first == nil || second == nil {
					result <- errors.New("no error of a stream that was closed")
					return
				}
				result <- nil
			},
			func(c *edgetest.FrameConn, id uint32) { c.ExpectReset(id, http2.ErrCodeCancel) },
		},
		"panic": {
			func(net.Conn) {
				result <- nil
				panic("on purpose")
			},
			func(c *edgetest.FrameConn, id uint32) { c.ExpectReset(id, http2.ErrCodeCancel) },
		},
		"deadlines": {
			func(nc net.Conn) {
				past := time.Now().Add(-time.Second)
				_ = nc.SetDeadline(past)
				_, err := nc.Read(make([]byte, 1))
				_, writeErr := nc.Write(bytes.Repeat([]byte("x"), initialWindow+1))
				if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(writeErr, os.ErrDeadlineExceeded) {
					result <- errors.Join(errors.New("no deadlines"), err, writeErr)
					return
				}
				_ = nc.SetDeadline(time.Time{})
				_, err = io.ReadFull(nc, make([]byte, 5))
				result <- err
			},
			func(c *edgetest.FrameConn, id uint32) {
				c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameData })
				c.Write(id, "later", false)
				c.ExpectReset(id, http2.ErrCodeCancel)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts, done := edgetest.StartUpgrades(t, test.serve)
			c := ts.DialFrames()
			id := c.Tunnel("/")
			c.Respond(id)
			test.client(c, id)
			if err := edgetest.Receive(t, result, "result"); err != nil {
				t.Error(err)
			}
			edgetest.Receive(t, done, "Done")
		})
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHTTP2UpgradeWindows: who does not read holds up nothing but their own stream, for as
// long as they like, as a connection would.
func TestHTTP2UpgradeWindows(t *testing.T) {
	started, release := make(chan struct{}, 10), make(chan struct{})
	ts, done := edgetest.StartUpgrades(t, func(nc net.Conn) {
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			_, _ = nc.Write(make([]byte, 2*initialWindow))
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
		}()
		started <- struct{}{}
		<-release
		_, _ = io.Copy(io.Discard, nc)
		<-wrote
	}, func(o *edge.Options) { o.WriteTimeout, o.BodyIdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	var tunnels []uint32
	for range 2 * uploadBuffers / uploadBuffer {
		id := c.Tunnel("/")
		c.Respond(id)
		edgetest.Receive(t, started, "start")
		c.Write(id, strings.Repeat("x", uploadBuffer), false)
		c.Expect(id, string(make([]byte, 1000)))
		tunnels = append(tunnels, id)
	}
	post := c.Request("POST", "/", true)
	c.Write(post, strings.Repeat("x", uploadBuffer), true)
	c.Expect(post, strconv.Itoa(uploadBuffer))
	c.Until(edgetest.IsReset(c.Request("GET", "/large", false))) // which has not waited longer than the tunnels
	close(release)
	all := func(want func(id uint32) func(http2.Frame) bool) {
		left := map[uint32]bool{}
		for _, id := range tunnels {
			left[id] = true
		}
		c.Until(func(frame http2.Frame) bool {
			if id := frame.Header().StreamID; left[id] && want(id)(frame) {
				delete(left, id)
			}
			return len(left) == 0
		})
	}
	all(func(uint32) func(http2.Frame) bool {
		return func(frame http2.Frame) bool {
			_, ok := frame.(*http2.WindowUpdateFrame)
			return ok
		}
	})
	for _, id := range tunnels {
		c.Write(id, "the rest", true)
		if err := errors.Join(c.WriteWindowUpdate(id, 2*initialWindow), c.WriteWindowUpdate(0, 2*initialWindow)); err != nil {
			t.Fatal(err)
		}
	}
	all(edgetest.IsEnd)
	for range tunnels {
		if d := edgetest.Receive(t, done, "Done"); d.Err != nil || d.N != 2*initialWindow {
			t.Errorf("done %v", d)
		}
	}
	if n := ts.Unread(); n != 0 {
		t.Errorf("%d bytes count as unread", n)
	}
}

// TestHTTP2Tunnels: what is no tunnel, and what its request is to the handler.
func TestHTTP2Tunnels(t *testing.T) {
	requests := make(chan *api.Request, 1)
	ended := make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		requests <- r
		resp := &api.Response{Status: 200, Done: func(_ int64, err error) { ended <- err }}
		switch r.Path {
		case "/forbidden":
			resp.Status, resp.Body = 403, []byte("no")
		case "/list":
			resp.Body = []byte("list")
		case "/stream":
			resp = edgetest.NewRecordingStream().Response()
			resp.Done = func(_ int64, err error) { ended <- err }
		}
		return resp
	})
	connect := []string{":method", "CONNECT", ":scheme", "https", ":authority", "x", ":path", "/forbidden", ":protocol", "websocket"}
	without := func(name string) []string {
		i := slices.Index(connect, name)
		return slices.Delete(slices.Clone(connect), i, i+2)
	}
	for name, fields := range map[string][]string{
		"without a scheme":     without(":scheme"),
		"without a path":       without(":path"),
		"without an authority": without(":authority"),
		"of another method":    append(without(":method"), ":method", "GET"),
		"with a length":        append(slices.Clone(connect), "content-length", "0"),
		"with an upgrade":      append(slices.Clone(connect), "upgrade", "websocket"),
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.DialFrames()
			c.Fields(1, fields...)
			c.ExpectReset(1, http2.ErrCodeProtocol)
		})
	}
	t.Run("another protocol", func(t *testing.T) {
		c := ts.DialFrames()
		id := c.Request("CONNECT", "/", true, ":protocol", "connect-udp")
		if header := c.Respond(id); header[":status"] != "501" {
			t.Errorf("got %v", header)
		}
		c.Expect(id, "501 Not Implemented")
	})
	for path, want := range map[string]struct {
		status string
		err    error
	}{"/forbidden?a=b": {"403", nil}, "/list": {"400", errNoTunnel}, "/stream": {"400", errNoTunnel}} {
		t.Run(path, func(t *testing.T) {
			c := ts.DialFrames()
			id := c.Tunnel(path, "origin", "https://x")
			if header := c.Respond(id); header[":status"] != want.status {
				t.Errorf("got %v", header)
			}
			r := edgetest.Receive(t, requests, "request")
			if r.Method != "GET" || r.Upgrade != "websocket" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" || r.Host != "x" || r.Body != nil || r.Proto != "HTTP/2.0" || r.Header.Get("Origin") != "https://x" {
				t.Errorf("%+v", r)
			}
			if err := edgetest.Receive(t, ended, "Done"); !errors.Is(err, want.err) {
				t.Errorf("done: %v", err)
			}
			c.ExpectReset(id, http2.ErrCodeNo)
		})
	}
}
