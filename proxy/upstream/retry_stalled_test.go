package upstream

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// stalledBody is a connection on which nothing leaves while ice is frozen.
type stalledBody struct {
	net.Conn
	ice    *freezer
	open   context.Context
	closed context.CancelFunc
}

// Write implements net.Conn.
func (c *stalledBody) Write(p []byte) (int, error) {
	c.ice.wait(c.open)
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *stalledBody) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestWriteStalled: a write whose head is on its way into a connection that takes nothing may
// arrive when that goes on, after its client was answered.
func TestWriteStalled(t *testing.T) {
	for name, many := range map[string]bool{"one server": false, "several": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the write is waited for
			var ice freezer
			arrived := make(chan struct{}, 1)
			s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
				if !pool.Safe(r.Method) {
					arrived <- struct{}{}
				}
			})
			c := s.client(t, func(o *Options) {
				o.Limits = Limits{RequestTimeout: time.Second, ServerCheck: time.Hour}
				if many {
					o.Servers = []string{s.URL}
				}
				o.Config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, address)
					if err != nil {
						return nil, err
					}
					open, closed := context.WithCancel(context.Background())
					return &stalledBody{conn, &ice, open, closed}, nil
				}
			})
			c.direct.Store(pool.MaxHTTP1) // what is more goes over HTTP/2
			if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 {
				t.Fatalf("a read: %d %s", status, body)
			}
			ice.freeze()
			status, body := do(t, c, "DELETE", "/api/v1/namespaces/x/pods/y", "")
			ice.melt()
			within(t, arrived, "the write")
			if status != 504 || !strings.Contains(body, "it is not known whether the request was applied") {
				t.Errorf("a write that arrived: %d %s", status, body)
			}
		})
	}
}
