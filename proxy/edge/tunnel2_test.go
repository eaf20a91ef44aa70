package edge

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

	"github.com/kubeweir/kubeweir/api"
)

// tunnel begins an extended CONNECT.
func (f *frameConn) tunnel(path string, header ...string) uint32 {
	f.t.Helper()
	return f.request("CONNECT", path, true, append([]string{":protocol", "websocket", "sec-websocket-version", "13"}, header...)...)
}

// write sends data on a stream.
func (f *frameConn) write(id uint32, data string, end bool) {
	f.t.Helper()
	for {
		n := min(len(data), frameSize)
		if err := f.WriteData(id, end && n == len(data), []byte(data[:n])); err != nil {
			f.t.Fatal(err)
		}
		if data = data[n:]; data == "" {
			return
		}
	}
}

// answer reads the header of the answer.
func (f *frameConn) answer(id uint32) map[string]string {
	f.t.Helper()
	header := map[string]string{}
	f.until(func(frame http2.Frame) bool {
		head, ok := frame.(*http2.MetaHeadersFrame)
		if ok = ok && head.StreamID == id; ok {
			for _, field := range head.Fields {
				header[field.Name] = field.Value
			}
		}
		return ok
	})
	return header
}

// expect reads data.
func (f *frameConn) expect(id uint32, want string) {
	f.t.Helper()
	for got := ""; got != want; {
		f.until(func(frame http2.Frame) bool {
			data, ok := frame.(*http2.DataFrame)
			if ok = ok && data.StreamID == id; ok {
				got += string(data.Data())
			}
			return ok
		})
		if !strings.HasPrefix(want, got) {
			f.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// expectReset reads the reset of a stream.
func (f *frameConn) expectReset(id uint32, want http2.ErrCode) {
	f.t.Helper()
	f.until(func(frame http2.Frame) bool {
		reset, ok := frame.(*http2.RSTStreamFrame)
		if ok = ok && reset.StreamID == id; ok && reset.ErrCode != want {
			f.t.Errorf("reset with %v, want %v", reset.ErrCode, want)
		}
		return ok
	})
}

// expectUpdate reads until the window of a stream, or of the connection, is larger.
func (f *frameConn) expectUpdate(id uint32) {
	f.t.Helper()
	f.until(func(frame http2.Frame) bool {
		_, ok := frame.(*http2.WindowUpdateFrame)
		return ok && frame.Header().StreamID == id
	})
}

// TestHTTP2AnnouncesTunnels: RFC 8441, 3.
func TestHTTP2AnnouncesTunnels(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("") })
	ts.dialFrames().until(func(frame http2.Frame) bool {
		settings, ok := frame.(*http2.SettingsFrame)
		if ok {
			if v, ok := settings.Value(http2.SettingEnableConnectProtocol); !ok || v != 1 {
				t.Errorf("announced %v", v)
			}
		}
		return ok
	})
}

// startUpgrades has f take over what asks for it; other requests get what they sent.
func startUpgrades(t *testing.T, f func(nc net.Conn), change ...func(*Options)) (*testServer, chan doneCall) {
	done := make(chan doneCall, 10)
	return startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/large" {
			return text(strings.Repeat("x", 2*initialWindow))
		}
		if r.Upgrade == "" {
			n, err := io.Copy(io.Discard, r.Body)
			return text(strconv.FormatInt(n, 10) + errorText(err))
		}
		return &api.Response{Status: 101, Header: switchTo("x"), Upgrade: f, Done: func(n int64, err error) { done <- doneCall{n, err} }}
	}, change...), done
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestHTTP2Upgrade is TestUpgrade over HTTP/2: the stream is what the connection is there.
func TestHTTP2Upgrade(t *testing.T) {
	ts, done := startUpgrades(t, func(nc net.Conn) {
		webSocketEcho("").Upgrade(nc)
		// Without, its return would be a reset unless the client's end had been read by then.
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	})
	c := ts.dialFrames()
	for range 3 {
		id := c.tunnel("/exec")
		c.write(id, maskedFrame(1, "early"), false)
		header := c.answer(id)
		if _, accept := header["sec-websocket-accept"]; header[":status"] != "200" || accept {
			t.Fatalf("got %v", header)
		}
		c.expect(id, "\x81\x05early")
		for i := range 100 {
			text := strings.Repeat("x", i)
			c.write(id, maskedFrame(1, text), false)
			c.expect(id, "\x81"+string(rune(i))+text)
		}
		c.write(id, maskedFrame(8, string(binary.BigEndian.AppendUint16(nil, 1000))), true)
		c.expect(id, "\x88\x02\x03\xe8")
		c.until(isEnd(id))
		if d := receive(t, done, "Done"); d.err != nil || d.n < 5000 {
			t.Errorf("done %v", d)
		}
	}
}

// TestHTTP2UpgradeEnds: how one side ends, and the other learns of it.
func TestHTTP2UpgradeEnds(t *testing.T) {
	result := make(chan error, 1)
	for name, test := range map[string]struct {
		serve  func(nc net.Conn)
		client func(c *frameConn, id uint32)
	}{
		"client ends": {
			func(nc net.Conn) {
				b, err := io.ReadAll(nc)
				_, _ = nc.Write(append(b, " and more"...))
				result <- errors.Join(err, nc.(interface{ CloseWrite() error }).CloseWrite())
			},
			func(c *frameConn, id uint32) {
				c.write(id, "last", true)
				c.expect(id, "last and more")
				c.until(isEnd(id))
			},
		},
		"server ends": {
			func(nc net.Conn) {
				err := nc.(interface{ CloseWrite() error }).CloseWrite()
				_, readErr := io.ReadAll(nc)
				result <- errors.Join(err, readErr)
			},
			func(c *frameConn, id uint32) {
				c.until(isEnd(id))
				c.write(id, "more", true)
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
			func(c *frameConn, id uint32) { _ = c.WriteRSTStream(id, http2.ErrCodeCancel) },
		},
		"server resets": {
			func(nc net.Conn) { result <- nc.Close() },
			func(c *frameConn, id uint32) { c.expectReset(id, http2.ErrCodeCancel) },
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
			func(c *frameConn, id uint32) { c.expectReset(id, http2.ErrCodeCancel) },
		},
		"panic": {
			func(net.Conn) {
				result <- nil
				panic("on purpose")
			},
			func(c *frameConn, id uint32) { c.expectReset(id, http2.ErrCodeCancel) },
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
			func(c *frameConn, id uint32) {
				c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameData })
				c.write(id, "later", false)
				c.expectReset(id, http2.ErrCodeCancel)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts, done := startUpgrades(t, test.serve)
			c := ts.dialFrames()
			id := c.tunnel("/")
			c.answer(id)
			test.client(c, id)
			if err := receive(t, result, "result"); err != nil {
				t.Error(err)
			}
			receive(t, done, "Done")
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
	ts, done := startUpgrades(t, func(nc net.Conn) {
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
	}, func(o *Options) { o.WriteTimeout, o.BodyIdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	var tunnels []uint32
	for range 2 * uploadBuffers / uploadBuffer {
		id := c.tunnel("/")
		c.answer(id)
		receive(t, started, "start")
		c.write(id, strings.Repeat("x", uploadBuffer), false)
		c.expect(id, string(make([]byte, 1000)))
		tunnels = append(tunnels, id)
	}
	post := c.request("POST", "/", true)
	c.write(post, strings.Repeat("x", uploadBuffer), true)
	c.expect(post, strconv.Itoa(uploadBuffer))
	c.until(isReset(c.request("GET", "/large", false))) // which has not waited longer than the tunnels
	close(release)
	all := func(want func(id uint32) func(http2.Frame) bool) {
		left := map[uint32]bool{}
		for _, id := range tunnels {
			left[id] = true
		}
		c.until(func(frame http2.Frame) bool {
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
		c.write(id, "the rest", true)
		if err := errors.Join(c.WriteWindowUpdate(id, 2*initialWindow), c.WriteWindowUpdate(0, 2*initialWindow)); err != nil {
			t.Fatal(err)
		}
	}
	all(isEnd)
	for range tunnels {
		if d := receive(t, done, "Done"); d.err != nil || d.n != 2*initialWindow {
			t.Errorf("done %v", d)
		}
	}
	if n := ts.buffers.unread.Load(); n != 0 {
		t.Errorf("%d bytes count as unread", n)
	}
}

// TestHTTP2Tunnels: what is no tunnel, and what its request is to the handler.
func TestHTTP2Tunnels(t *testing.T) {
	requests := make(chan *api.Request, 1)
	ended := make(chan error, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		requests <- r
		resp := &api.Response{Status: 200, Done: func(_ int64, err error) { ended <- err }}
		switch r.Path {
		case "/forbidden":
			resp.Status, resp.Body = 403, []byte("no")
		case "/list":
			resp.Body = []byte("list")
		case "/stream":
			resp = newRecordingStream().response()
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
			c := ts.dialFrames()
			c.fields(1, fields...)
			c.expectReset(1, http2.ErrCodeProtocol)
		})
	}
	t.Run("another protocol", func(t *testing.T) {
		c := ts.dialFrames()
		id := c.request("CONNECT", "/", true, ":protocol", "connect-udp")
		if header := c.answer(id); header[":status"] != "501" {
			t.Errorf("got %v", header)
		}
		c.expect(id, "501 Not Implemented")
	})
	for path, want := range map[string]struct {
		status string
		err    error
	}{"/forbidden?a=b": {"403", nil}, "/list": {"400", errNoTunnel}, "/stream": {"400", errNoTunnel}} {
		t.Run(path, func(t *testing.T) {
			c := ts.dialFrames()
			id := c.tunnel(path, "origin", "https://x")
			if header := c.answer(id); header[":status"] != want.status {
				t.Errorf("got %v", header)
			}
			r := receive(t, requests, "request")
			if r.Method != "GET" || r.Upgrade != "websocket" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" || r.Host != "x" || r.Body != nil || r.Proto != "HTTP/2.0" || r.Header.Get("Origin") != "https://x" {
				t.Errorf("%+v", r)
			}
			if err := receive(t, ended, "Done"); !errors.Is(err, want.err) {
				t.Errorf("done: %v", err)
			}
			c.expectReset(id, http2.ErrCodeNo)
		})
	}
}
