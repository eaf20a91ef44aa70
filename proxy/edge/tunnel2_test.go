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

	"github.com/kubeweir/kubeweir/internal/api"
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

// TestHTTP2Duplex is TestDuplex over HTTP/2.
func TestHTTP2Duplex(t *testing.T) {
	ts, duplexes := startDuplexes(t)
	open := func(t *testing.T, c *frameConn, early string) (uint32, *recordingDuplex, api.StreamWriter) {
		t.Helper()
		id := c.tunnel("/watch")
		if early != "" {
			c.write(id, early, false)
		}
		header := c.answer(id)
		for _, name := range []string{"upgrade", "connection", "sec-websocket-accept", "content-length"} {
			if value, ok := header[name]; ok {
				t.Errorf("%s: %s", name, value)
			}
		}
		if header[":status"] != "200" || header["sec-websocket-protocol"] != "sub" {
			t.Fatalf("got %v", header)
		}
		d := receive(t, duplexes, "duplex")
		return id, d, receive(t, d.writer, "writer")
	}
	for name, test := range map[string]func(t *testing.T, c *frameConn){
		"both ways": func(t *testing.T, c *frameConn) {
			id, d, w := open(t, c, "early")
			d.next(t, "early")
			if err := w.WriteFrames(frames("one", "two")); err != nil {
				t.Fatal(err)
			}
			c.expect(id, "onetwo")
			c.write(id, "more", false)
			d.next(t, "more")
			w.Close()
			c.until(isEnd(id))
			if got := d.over(t); got.err != nil || got.n != 6 {
				t.Errorf("done %v", got)
			}
			c.expectReset(id, http2.ErrCodeNo) // as the client has not ended its side
		},
		"windows are given back": func(t *testing.T, c *frameConn) {
			id, d, _ := open(t, c, "")
			for range 8 { // twice what the connection takes at once
				long := strings.Repeat("x", uploadBuffer)
				c.write(id, long, false)
				d.next(t, long)
				for given := int64(0); given < uploadBuffer; {
					c.until(func(frame http2.Frame) bool {
						update, ok := frame.(*http2.WindowUpdateFrame)
						if ok = ok && update.StreamID == id; ok {
							given += int64(update.Increment)
						}
						return ok
					})
				}
			}
		},
		"nothing more is wanted": func(t *testing.T, c *frameConn) {
			id, d, w := open(t, c, "")
			c.write(id, "enough", false)
			d.next(t, "enough")
			c.write(id, "more", false)
			c.expectUpdate(id) // and lets it go
			if err := w.WriteFrames(frames("still here")); err != nil {
				t.Fatal(err)
			}
			c.expect(id, "still here")
			c.write(id, "", true)
			c.until(isEnd(id))
			if d.over(t); len(d.received) > 0 {
				t.Errorf("received %q", <-d.received)
			}
		},
		"client ends": func(t *testing.T, c *frameConn) {
			id, d, w := open(t, c, "")
			c.write(id, "last", true)
			d.next(t, "last")
			c.until(isEnd(id))
			if got := d.over(t); got.err != nil {
				t.Errorf("done %v", got)
			}
			if w.WriteFrames(frames("late")) == nil {
				t.Error("written behind the end")
			}
		},
		"client ends at once": func(t *testing.T, c *frameConn) {
			id := c.tunnel("/watch")
			c.write(id, "all", true)
			d := receive(t, duplexes, "duplex")
			c.until(isEnd(id))
			d.over(t)
			d.next(t, "all")
		},
		"client resets": func(t *testing.T, c *frameConn) {
			id, d, _ := open(t, c, "")
			if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			if got := d.over(t); got.err != nil {
				t.Errorf("done %v", got)
			}
		},
		"aborted": func(t *testing.T, c *frameConn) {
			id, d, w := open(t, c, "")
			w.Abort()
			c.expectReset(id, http2.ErrCodeCancel)
			d.over(t)
		},
		"panic": func(t *testing.T, c *frameConn) {
			id, d, _ := open(t, c, "")
			c.write(id, "panic", false)
			c.expectReset(id, http2.ErrCodeCancel)
			d.over(t)
		},
		"trailers": func(t *testing.T, c *frameConn) {
			id, d, _ := open(t, c, "")
			c.trailers(id, "a", "b")
			c.expectReset(id, http2.ErrCodeProtocol)
			d.over(t)
		},
		"others go on": func(t *testing.T, c *frameConn) {
			first, d, w := open(t, c, "")
			second, e, v := open(t, c, "")
			c.write(second, "for the second", true)
			e.next(t, "for the second")
			c.until(isEnd(second))
			e.over(t)
			v.Close()
			if err := w.WriteFrames(frames("here")); err != nil {
				t.Fatal(err)
			}
			c.expect(first, "here")
			w.Close()
			c.until(isEnd(first))
			d.over(t)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, ts.dialFrames()) })
	}
}

// TestHTTP2DuplexDrains: a drain lets it end, and the connection with it.
func TestHTTP2DuplexDrains(t *testing.T) {
	d := &recordingDuplex{newRecordingStream(), make(chan string, 1)}
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		resp := d.response()
		resp.Status, resp.Stream, resp.Header = 101, d, switchTo("x")
		return resp
	})
	c := ts.dialFrames()
	id := c.tunnel("/")
	c.answer(id)
	w := receive(t, d.writer, "writer")
	over := make(chan error, 1)
	go func() { over <- ts.Shutdown(context.Background()) }()
	c.until(func(frame http2.Frame) bool {
		_, ok := frame.(*http2.GoAwayFrame)
		return ok
	})
	if err := w.WriteFrames(frames("still here")); err != nil {
		t.Fatal(err)
	}
	c.expect(id, "still here")
	w.Close()
	c.until(isEnd(id))
	c.write(id, "", true)
	if err := receive(t, over, "end of Shutdown"); err != nil {
		t.Error(err)
	}
	d.over(t)
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
