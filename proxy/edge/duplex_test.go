package edge

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
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
