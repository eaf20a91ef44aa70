package upstream

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestReplays: a request that the server breaks off by PROTOCOL_ERROR, as Go's does with a
// path that it cannot read, is not sent again and again.
func TestReplays(t *testing.T) {
	for _, many := range []bool{false, true} {
		var dials atomic.Int64
		s := newServer(t, func(http.ResponseWriter, *http.Request) {})
		c := s.client(t, func(o *Options) {
			if many {
				o.Servers, o.Limits = []string{s.URL}, Limits{ServerCheck: time.Hour}
			}
			o.Config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
		})
		for _, method := range []string{"POST", "GET"} {
			r := request(method, "/api/v1/watch/pods?watch=1")
			r.RawPath = "/%zz"
			before := dials.Load()
			resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
			if finish(t, resp); resp.Status != http.StatusServiceUnavailable {
				t.Errorf("%s, several servers %v: %d", method, many, resp.Status)
			}
			// Reads are tried once more by the gateway itself.
			if n := dials.Load() - before; n > 2*mostSends+2 {
				t.Errorf("%s, several servers %v: it was sent %d times", method, many, n)
			}
		}
	}
}
