package edge

import (
	"context"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestPromptRow(t *testing.T) {
	var p prompt
	again := func(n int, d time.Duration, alone bool) {
		for range n {
			p.waited(d, alone)
		}
	}
	for _, step := range []struct {
		name  string
		n     int
		d     time.Duration
		alone bool
		row   int
	}{
		{"too few", promptRow - 1, promptly, true, promptRow - 1},
		{"another asked", 1, promptly, false, 0},
		{"enough", promptRow + 5, 0, true, promptRow},
		{"a late one", 1, promptly + 1, true, 0},
	} {
		if again(step.n, step.d, step.alone); p.row != step.row {
			t.Errorf("%s: %d in a row, want %d", step.name, p.row, step.row)
		}
	}
}

func TestAlone(t *testing.T) {
	s, a, b := &Server{}, &conn{}, &conn{}
	for i, step := range []struct {
		c    *conn
		want bool
	}{{a, false}, {a, true}, {b, false}, {a, false}, {nil, false}, {nil, true}, {a, false}, {a, true}} {
		if got := s.alone(step.c); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	s.remove(b)
	if s.remove(a); s.latest.Load() != nil {
		t.Error("a closed connection is remembered")
	}
}

// TestThreadWait: requests one after the other are answered, over both listeners, and a connection that waits for one
// more does not hold up the end of the server.
func TestThreadWait(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, Body: []byte(r.Path)}
	}, func(o *Options) { o.ThreadWait = true })
	for _, c := range []*rawConn{ts.dial(), ts.dialTLS()} {
		for range 5 * promptRow {
			c.send("GET /one HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp, body := c.response("GET"); resp.StatusCode != 200 || body != "/one" {
				t.Fatalf("%s %q", resp.Status, body)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := ts.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
