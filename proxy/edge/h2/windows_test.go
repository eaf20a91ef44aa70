package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2ClosedWindow: what net/http sends when the handler has returned waits no
// longer for the client than the rest.
func TestHTTP2ClosedWindow(t *testing.T) {
	for name, resp := range map[string]func() *api.Response{
		"small": func() *api.Response { return edgetest.Text("not for you") },
		"written": func() *api.Response {
			return &api.Response{Status: 200, BodyTo: edgetest.WriterTo(edgetest.Hello), Length: 5}
		},
		"urgent": func() *api.Response {
			return &api.Response{Status: 200, BodyTo: edgetest.WriterTo(edgetest.Hello), Length: -1}
		},
		"large": func() *api.Response { return edgetest.Text(strings.Repeat("x", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return resp() },
				func(o *edge.Options) { o.WriteTimeout = 50 * time.Millisecond })
			c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			id := c.Request("GET", "/", false)
			c.Until(edgetest.IsReset(id))
		})
	}
}

// TestHTTP2ClosedWindowOfRejected: what net/http refuses by itself waits no longer for
// the client either.
func TestHTTP2ClosedWindowOfRejected(t *testing.T) {
	var large []string
	for range 7 {
		large = append(large, "a", strings.Repeat("x", 10<<10))
	}
	for name, header := range map[string][]string{
		"connection": {"connection", "close"},
		"te":         {"te", "gzip"},
		"too large":  large,
	} {
		t.Run(name, func(t *testing.T) {
			ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("not reached") },
				func(o *edge.Options) { o.WriteTimeout = 50 * time.Millisecond })
			c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			id := c.RequestInFrames("GET", "/", header...)
			c.Until(edgetest.IsReset(id))
		})
	}
}

// TestHTTP2SlowResponses: an answer may take as long as the handler likes, and so may the
// time between two parts of it.
func TestHTTP2SlowResponses(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for name, response := range map[string]func() *api.Response{
		"handler": func() *api.Response { time.Sleep(4 * timeout); return edgetest.Text("hello") },
		"body": func() *api.Response {
			return &api.Response{Status: 200, Length: -1, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
				_, _ = io.WriteString(w, "hel")
				time.Sleep(4 * timeout)
				_, err := io.WriteString(w, "lo")
				return 5, err
			})}
		},
		"stream": func() *api.Response {
			return &api.Response{Status: 200, Stream: edgetest.LateStream(func(w api.StreamWriter) {
				time.AfterFunc(4*timeout, func() {
					_ = w.WriteFrames([][]byte{[]byte("hello")})
					w.Close()
				})
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return response() },
				func(o *edge.Options) { o.WriteTimeout = timeout })
			resp, err := ts.Client(true).Get("https://" + ts.Secure)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// TestHTTP2BodyThatNeverComes: reading a body ends by the idle timeout, or by the
// deadline that the handler has set, whichever is first.
func TestHTTP2BodyThatNeverComes(t *testing.T) {
	const moment = 50 * time.Millisecond
	for name, idle := range map[string]time.Duration{"idle": moment, "deadline": time.Hour} {
		t.Run(name, func(t *testing.T) {
			errs := make(chan error, 1)
			ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
				if idle > moment {
					d := r.Body.(interface{ SetReadDeadline(time.Time) error })
					_ = d.SetReadDeadline(time.Now().Add(moment))
				}
				_, err := io.ReadAll(r.Body)
				errs <- err
				return edgetest.Text("late")
			}, func(o *edge.Options) { o.BodyIdleTimeout = idle })
			c := ts.DialFrames()
			id := c.Request("POST", "/", true, "content-length", "10")
			if err := c.WriteData(id, false, []byte("half")); err != nil {
				t.Fatal(err)
			}
			if err := edgetest.Receive(t, errs, "error"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading: %v", err)
			}
			c.Until(func(frame http2.Frame) bool {
				h, ok := frame.(*http2.MetaHeadersFrame)
				return ok && h.PseudoValue("status") == "200"
			})
		})
	}
}

// TestHTTP2SlowButSteady: a client that sends something in time may take longer than the
// timeouts for all.
func TestHTTP2SlowButSteady(t *testing.T) {
	const pause, times = defaults.PingInterval * 3 / 4, 20
	edgetest.InBubble(t, func(_ context.Context, r *api.Request) *api.Response {
		body, err := io.ReadAll(r.Body)
		return edgetest.Text(fmt.Sprint(len(body), err))
	}, func(t *testing.T, dial func() *edgetest.FrameConn, _ func() net.Conn) {
		c := dial()
		id, began := c.Request("POST", "/", true), time.Now()
		for range times {
			time.Sleep(pause)
			c.Write(id, "x", false)
		}
		c.Write(id, "", true)
		c.Expect(id, fmt.Sprint(times, nil))
		if took := time.Since(began); took < max(defaults.BodyIdleTimeout, defaults.WriteTimeout) {
			t.Errorf("it took %v, less than is borne of silence", took)
		}
	})
}
