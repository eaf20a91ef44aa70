package h2

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2Goodbye: a client that breaks the rules gets no more of its answers, however
// open its windows are and however fast it reads.
func TestHTTP2Goodbye(t *testing.T) {
	piece := make([]byte, 256<<10)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: -1, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
			for {
				if _, err := w.Write(piece); err != nil {
					return 0, err
				}
			}
		})}
	})
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = c.WriteWindowUpdate(0, 1<<30)
	for range 4 {
		c.Request("GET", "/", false)
	}
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameData })
	if err := c.WriteRawFrame(http2.FrameData, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameGoAway })
	for got := 0; ; {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		if got += int(frame.Header().Length); got > 64<<20 {
			t.Fatalf("%d bytes came behind GOAWAY", got)
		}
	}
}

// TestHTTP2GoAwaySlowReader: a client that is told to go away gets its answer to the end, though it reads slower than the
// connection lingers after a mistake, and sends WINDOW_UPDATE meanwhile.
func TestHTTP2GoAwaySlowReader(t *testing.T) {
	body, written := make([]byte, 1<<20), make(chan struct{})
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Body: body, Done: func(int64, error) { close(written) }}
	}, func(o *edge.Options) { o.LingerTimeout = time.Millisecond })
	conn := ts.DialH2()
	if err := conn.NetConn().(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	c := edgetest.NewFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = c.WriteWindowUpdate(0, 1<<30)
	c.Request("GET", "/", false)
	got, ended := 0, false
	read := func() error {
		frame, err := c.ReadFrame()
		switch frame := frame.(type) {
		case *http2.DataFrame:
			got, ended = got+len(frame.Data()), frame.StreamEnded()
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = c.WritePing(true, frame.Data)
			}
		}
		return err
	}
	for got == 0 {
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Timeout)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- ts.Shutdown(ctx) }()
	for writing := true; writing; {
		select {
		case <-written:
			writing = false
		default:
			writing = read() == nil // the end of the connection may be read before Done is called
		}
	}
	for range 100 {
		<-time.After(time.Millisecond)
		_ = c.WriteWindowUpdate(0, 1)
	}
	for {
		if err := read(); err != nil {
			break
		}
	}
	if got != len(body) || !ended {
		t.Errorf("%d bytes of %d came, end %t", got, len(body), ended)
	}
	_ = conn.Close()
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestHTTP2GoAwayInTime: a client that was told to go away, and neither says that it knows
// nor ever falls silent, is gone in time.
func TestHTTP2GoAwayInTime(t *testing.T) {
	for name, more := range map[string]func(c *edgetest.FrameConn){
		"pings":    func(c *edgetest.FrameConn) { _ = c.WritePing(false, [8]byte{}) },
		"requests": func(c *edgetest.FrameConn) { c.Request("GET", "/", false) },
	} {
		t.Run(name, func(t *testing.T) {
			edgetest.InBubble(t, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 401, Header: api.Header{{Name: "Connection", Value: "close"}}}
			}, func(t *testing.T, dial func() *edgetest.FrameConn, _ func() net.Conn) {
				c := dial()
				c.Tolerant()
				c.Request("GET", "/", false)
				began, over := time.Now(), make(chan struct{})
				go func() {
					defer close(over)
					for {
						if _, err := c.ReadFrame(); err != nil {
							return
						}
					}
				}()
				for time.Since(began) < 2*goAwayWait {
					select {
					case <-over:
						return
					case <-time.After(time.Millisecond / 4): // the server looks after one
						more(c)
					}
				}
				t.Error("the connection is still open")
			})
		})
	}
}
