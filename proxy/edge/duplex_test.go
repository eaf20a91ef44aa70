package edge

import (
	"context"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// recordingDuplex hands on what its client sends; "enough" is the last thing it wants,
// at "panic" it does.
type recordingDuplex struct {
	*recordingStream
	received chan string
}

func (d *recordingDuplex) Receive(p []byte) error {
	s := string(p)
	if strings.Contains(s, "panic") {
		panic(s)
	}
	d.received <- s
	if strings.HasSuffix(s, "enough") {
		return io.EOF
	}
	return nil
}

// next is what the client sent since the last call, of which there must be as much.
func (d *recordingDuplex) next(t *testing.T, want string) {
	t.Helper()
	for got := ""; got != want; {
		got += receive(t, d.received, "a piece of "+want)
		if !strings.HasPrefix(want, got) {
			t.Fatalf("received %q, want %q", got, want)
		}
	}
}

func startDuplexes(t *testing.T) (*testServer, chan *recordingDuplex) {
	duplexes := make(chan *recordingDuplex, 1)
	return startServer(t, func(context.Context, *api.Request) *api.Response {
		d := &recordingDuplex{newRecordingStream(), make(chan string, 100)}
		duplexes <- d
		resp := d.response()
		resp.Status, resp.Stream = 101, d
		resp.Header = append(switchTo("x"), api.HeaderField{Name: "Sec-WebSocket-Protocol", Value: "sub"})
		return resp
	}), duplexes
}

const duplexRequest = "GET /watch HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

func TestDuplex(t *testing.T) {
	ts, duplexes := startDuplexes(t)
	open := func(t *testing.T, c *rawConn, early string) (*recordingDuplex, api.StreamWriter) {
		t.Helper()
		c.send("%s", duplexRequest+early)
		c.expect("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: sub\r\n\r\n")
		d := receive(t, duplexes, "duplex")
		return d, receive(t, d.writer, "writer")
	}
	for name, dial := range map[string]func() *rawConn{"plain": ts.dial, "tls": ts.dialTLS} {
		t.Run(name, func(t *testing.T) {
			t.Run("both ways", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "early")
				d.next(t, "early")
				if err := w.WriteFrames(frames("one", "two")); err != nil {
					t.Fatal(err)
				}
				c.expect("onetwo")
				c.send("%s", "more")
				d.next(t, "more")
				long := strings.Repeat("x", 10*receiveBuffer)
				c.send("%s", long)
				d.next(t, long)
				w.Close()
				c.ended()
				if got := d.over(t); got.err != nil || got.n != 6 {
					t.Errorf("done %v", got)
				}
			})
			t.Run("nothing more is wanted", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "")
				c.send("enough")
				d.next(t, "enough")
				c.send("more")
				if err := w.WriteFrames(frames("still here")); err != nil {
					t.Fatal(err)
				}
				c.expect("still here")
				w.Close()
				c.ended()
				if d.over(t); len(d.received) > 0 {
					t.Errorf("received %q", <-d.received)
				}
			})
			t.Run("client leaves", func(t *testing.T) {
				c := dial()
				d, _ := open(t, c, "")
				_ = c.Close()
				d.over(t)
			})
			t.Run("aborted", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "")
				w.Abort()
				d.over(t)
			})
			t.Run("panic", func(t *testing.T) {
				c := dial()
				d, _ := open(t, c, "")
				c.send("panic")
				d.over(t)
			})
		})
	}
}

// TestDuplexIsForWhoAsks: who did not ask, or still sends a body, gets none.
func TestDuplexIsForWhoAsks(t *testing.T) {
	ts, duplexes := startDuplexes(t)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                                    500,
		strings.Replace(duplexRequest, "\r\n\r\n", "\r\nContent-Length: 100000\r\n\r\nxyz", 1): 400,
	} {
		c := ts.dialTLS()
		c.send("%s", request)
		if resp, body := c.response("GET"); resp.StatusCode != want {
			t.Errorf("%q: %d %s", request, resp.StatusCode, body)
		}
		receive(t, duplexes, "duplex").over(t)
	}
	resp, err := ts.client(true).Get("https://" + ts.secure)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 500 {
		t.Errorf("over HTTP/2: %d", resp.StatusCode)
	}
	receive(t, duplexes, "duplex").over(t)
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
