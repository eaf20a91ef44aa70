package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

func TestPanics(t *testing.T) {
	object := strings.Repeat("x", 100<<10)
	panicAfter := func(s string) io.WriterTo {
		return edgetest.WriterTo(func(w io.Writer) (int64, error) {
			_, _ = io.WriteString(w, s)
			panic("in the body")
		})
	}
	responses := map[string]func() *api.Response{
		"/handler":  func() *api.Response { panic("in the handler") },
		"/nil":      func() *api.Response { return nil },
		"/status":   func() *api.Response { return &api.Response{Status: 7} },
		"/body":     func() *api.Response { return &api.Response{Status: 200, BodyTo: panicAfter("a"), Length: 2} },
		"/bodylate": func() *api.Response { return &api.Response{Status: 200, BodyTo: panicAfter(object), Length: 1 << 20} },
		"/chunked":  func() *api.Response { return &api.Response{Status: 200, BodyTo: panicAfter("a"), Length: -1} },
		"/stream": func() *api.Response {
			return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(api.StreamWriter) { panic("in Start") }}}
		},
		"/stop": func() *api.Response {
			return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{
				OnStart: func(w api.StreamWriter) { w.Close() }, OnStop: func() { panic("in Stop") },
			}}
		},
		"/done": func() *api.Response {
			return &api.Response{Status: 200, Body: []byte("fine"), Done: func(int64, error) { panic("in Done") }}
		},
	}
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response { return responses[r.Path]() })
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		for path, want := range map[string]struct {
			status int
			broken bool
		}{
			"/handler": {500, false}, "/nil": {500, false}, "/status": {500, false}, "/body": {500, false},
			"/bodylate": {200, true}, "/chunked": {200, true}, "/stream": {200, true}, "/stop": {200, false}, "/done": {200, false},
		} {
			resp, err := c.Get(url + path)
			if err != nil {
				// The connection may end before the client has looked at the head.
				if !want.broken {
					t.Errorf("%s: %v", path, err)
				}
				continue
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want.status || (err != nil) != want.broken {
				t.Errorf("%s: got %d %q %v", path, resp.StatusCode, body, err)
			}
			if want.status == 500 && (resp.Header.Get("Content-Type") != "application/json" ||
				!strings.HasPrefix(string(body), `{"kind":"Status",`) || !strings.Contains(string(body), `"reason":"InternalError","code":500}`)) {
				t.Errorf("%s: got %q", path, body)
			}
		}
	})
	for place, want := range map[string]float64{"handler": 3, "body": 9, "stream": 6, "done": 3} {
		for end := time.Now().Add(edgetest.Timeout); ts.Gauge("kubeweir_panics_total", place) < want && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // Stop is called when the client may have it all
		}
		if got := ts.Gauge("kubeweir_panics_total", place); got != want {
			t.Errorf("%v panics in %s counted, want %v", got, place, want)
		}
	}
	if log := ts.Log.String(); !strings.Contains(log, "in the handler") || !strings.Contains(log, "panic_test.go") {
		t.Errorf("logged: %s", log)
	}
}

func TestPanicInUpgrade(t *testing.T) {
	done := make(chan edgetest.DoneCall, 1)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Upgrade: func(net.Conn) { panic("in Upgrade") }, Done: func(n int64, err error) { done <- edgetest.DoneCall{N: n, Err: err} }}
	})
	c := ts.Dial()
	c.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	c.Head("GET")
	c.Ended()
	if d := edgetest.Receive(t, done, "Done"); d.Err == nil {
		t.Error("Done knows no error")
	}
	if got := ts.Gauge("kubeweir_panics_total", "upgrade"); got != 1 {
		t.Errorf("%v panics counted", got)
	}
}
