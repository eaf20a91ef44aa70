package h2

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestHTTP2Duplex is TestDuplex over HTTP/2.
func TestHTTP2Duplex(t *testing.T) {
	ts, duplexes := edgetest.StartDuplexes(t)
	open := func(t *testing.T, c *edgetest.FrameConn, early string) (uint32, *edgetest.RecordingDuplex, api.StreamWriter) {
		t.Helper()
		id := c.Tunnel("/watch")
		if early != "" {
			c.Write(id, early, false)
		}
		header := c.Respond(id)
		for _, name := range []string{"upgrade", "connection", "sec-websocket-accept", "content-length"} {
			if value, ok := header[name]; ok {
				t.Errorf("%s: %s", name, value)
			}
		}
		if header[":status"] != "200" || header["sec-websocket-protocol"] != "sub" {
			t.Fatalf("got %v", header)
		}
		d := edgetest.Receive(t, duplexes, "duplex")
		return id, d, edgetest.Receive(t, d.Writer, "writer")
	}
	for name, test := range map[string]func(t *testing.T, c *edgetest.FrameConn){
		"both ways": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, w := open(t, c, "early")
			d.Next(t, "early")
			if err := w.WriteFrames(edgetest.Frames("one", "two")); err != nil {
				t.Fatal(err)
			}
			c.Expect(id, "onetwo")
			c.Write(id, "more", false)
			d.Next(t, "more")
			w.Close()
			c.Until(edgetest.IsEnd(id))
			if got := d.Over(t); got.Err != nil || got.N != 6 {
				t.Errorf("done %v", got)
			}
			c.ExpectReset(id, http2.ErrCodeNo) // as the client has not ended its side
		},
		"windows are given back": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, _ := open(t, c, "")
			for range 8 { // twice what the connection takes at once
				long := strings.Repeat("x", uploadBuffer)
				c.Write(id, long, false)
				d.Next(t, long)
				for given := int64(0); given < uploadBuffer; {
					c.Until(func(frame http2.Frame) bool {
						update, ok := frame.(*http2.WindowUpdateFrame)
						if ok = ok && update.StreamID == id; ok {
							given += int64(update.Increment)
						}
						return ok
					})
				}
			}
		},
		"nothing more is wanted": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, w := open(t, c, "")
			c.Write(id, "enough", false)
			d.Next(t, "enough")
			c.Write(id, "more", false)
			c.ExpectUpdate(id) // and lets it go
			if err := w.WriteFrames(edgetest.Frames("still here")); err != nil {
				t.Fatal(err)
			}
			c.Expect(id, "still here")
			c.Write(id, "", true)
			c.Until(edgetest.IsEnd(id))
			if d.Over(t); len(d.Received) > 0 {
				t.Errorf("received %q", <-d.Received)
			}
		},
		"client ends": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, w := open(t, c, "")
			c.Write(id, "last", true)
			d.Next(t, "last")
			c.Until(edgetest.IsEnd(id))
			if got := d.Over(t); got.Err != nil {
				t.Errorf("done %v", got)
			}
			if w.WriteFrames(edgetest.Frames("late")) == nil {
				t.Error("written behind the end")
			}
		},
		"client ends at once": func(t *testing.T, c *edgetest.FrameConn) {
			id := c.Tunnel("/watch")
			c.Write(id, "all", true)
			d := edgetest.Receive(t, duplexes, "duplex")
			c.Until(edgetest.IsEnd(id))
			d.Over(t)
			d.Next(t, "all")
		},
		"client resets": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, _ := open(t, c, "")
			if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			if got := d.Over(t); got.Err != nil {
				t.Errorf("done %v", got)
			}
		},
		"aborted": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, w := open(t, c, "")
			w.Abort()
			c.ExpectReset(id, http2.ErrCodeCancel)
			d.Over(t)
		},
		"panic": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, _ := open(t, c, "")
			c.Write(id, "panic", false)
			c.ExpectReset(id, http2.ErrCodeCancel)
			d.Over(t)
		},
		"trailers": func(t *testing.T, c *edgetest.FrameConn) {
			id, d, _ := open(t, c, "")
			c.Trailers(id, "a", "b")
			c.ExpectReset(id, http2.ErrCodeProtocol)
			d.Over(t)
		},
		"others go on": func(t *testing.T, c *edgetest.FrameConn) {
			first, d, w := open(t, c, "")
			second, e, v := open(t, c, "")
			c.Write(second, "for the second", true)
			e.Next(t, "for the second")
			c.Until(edgetest.IsEnd(second))
			e.Over(t)
			v.Close()
			if err := w.WriteFrames(edgetest.Frames("here")); err != nil {
				t.Fatal(err)
			}
			c.Expect(first, "here")
			w.Close()
			c.Until(edgetest.IsEnd(first))
			d.Over(t)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, ts.DialFrames()) })
	}
}

// TestHTTP2DuplexDrains: a drain lets it end, and the connection with it.
func TestHTTP2DuplexDrains(t *testing.T) {
	d := &edgetest.RecordingDuplex{RecordingStream: edgetest.NewRecordingStream(), Received: make(chan string, 1)}
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		resp := d.Response()
		resp.Status, resp.Stream, resp.Header = 101, d, edgetest.SwitchTo("x")
		return resp
	})
	c := ts.DialFrames()
	id := c.Tunnel("/")
	c.Respond(id)
	w := edgetest.Receive(t, d.Writer, "writer")
	over := make(chan error, 1)
	go func() { over <- ts.Shutdown(context.Background()) }()
	c.Until(func(frame http2.Frame) bool {
		_, ok := frame.(*http2.GoAwayFrame)
		return ok
	})
	if err := w.WriteFrames(edgetest.Frames("still here")); err != nil {
		t.Fatal(err)
	}
	c.Expect(id, "still here")
	w.Close()
	c.Until(edgetest.IsEnd(id))
	c.Write(id, "", true)
	if err := edgetest.Receive(t, over, "end of Shutdown"); err != nil {
		t.Error(err)
	}
	d.Over(t)
}
