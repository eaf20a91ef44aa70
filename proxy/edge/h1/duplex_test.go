package h1

import (
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

const duplexRequest = "GET /watch HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

func TestDuplex(t *testing.T) {
	ts, duplexes := edgetest.StartDuplexes(t)
	open := func(t *testing.T, c *edgetest.RawConn, early string) (*edgetest.RecordingDuplex, api.StreamWriter) {
		t.Helper()
		c.Send("%s", duplexRequest+early)
		c.Expect("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: sub\r\n\r\n")
		d := edgetest.Receive(t, duplexes, "duplex")
		return d, edgetest.Receive(t, d.Writer, "writer")
	}
	for name, dial := range map[string]func() *edgetest.RawConn{"plain": ts.Dial, "tls": ts.DialTLS} {
		t.Run(name, func(t *testing.T) {
			t.Run("both ways", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "early")
				d.Next(t, "early")
				if err := w.WriteFrames(edgetest.Frames("one", "two")); err != nil {
					t.Fatal(err)
				}
				c.Expect("onetwo")
				c.Send("%s", "more")
				d.Next(t, "more")
				long := strings.Repeat("x", 10*receiveBuffer)
				c.Send("%s", long)
				d.Next(t, long)
				w.Close()
				c.Ended()
				if got := d.Over(t); got.Err != nil || got.N != 6 {
					t.Errorf("done %v", got)
				}
			})
			t.Run("nothing more is wanted", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "")
				c.Send("enough")
				d.Next(t, "enough")
				c.Send("more")
				if err := w.WriteFrames(edgetest.Frames("still here")); err != nil {
					t.Fatal(err)
				}
				c.Expect("still here")
				w.Close()
				c.Ended()
				if d.Over(t); len(d.Received) > 0 {
					t.Errorf("received %q", <-d.Received)
				}
			})
			t.Run("client leaves", func(t *testing.T) {
				c := dial()
				d, _ := open(t, c, "")
				_ = c.Close()
				d.Over(t)
			})
			t.Run("aborted", func(t *testing.T) {
				c := dial()
				d, w := open(t, c, "")
				w.Abort()
				d.Over(t)
			})
			t.Run("panic", func(t *testing.T) {
				c := dial()
				d, _ := open(t, c, "")
				c.Send("panic")
				d.Over(t)
			})
		})
	}
}

// TestDuplexIsForClientsThatRequestIt: who did not ask, or still sends a body, gets none.
func TestDuplexIsForClientsThatRequestIt(t *testing.T) {
	ts, duplexes := edgetest.StartDuplexes(t)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                                    500,
		strings.Replace(duplexRequest, "\r\n\r\n", "\r\nContent-Length: 100000\r\n\r\nxyz", 1): 400,
	} {
		c := ts.DialTLS()
		c.Send("%s", request)
		if resp, body := c.Response("GET"); resp.StatusCode != want {
			t.Errorf("%q: %d %s", request, resp.StatusCode, body)
		}
		edgetest.Receive(t, duplexes, "duplex").Over(t)
	}
	resp, err := ts.Client(true).Get("https://" + ts.Secure)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 500 {
		t.Errorf("over HTTP/2: %d", resp.StatusCode)
	}
	edgetest.Receive(t, duplexes, "duplex").Over(t)
}
