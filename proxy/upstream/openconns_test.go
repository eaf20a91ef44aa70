package upstream

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// TestCloseEndsConnections: a closed client leaves no connection behind, be a request still
// on it, and opens none.
func TestCloseEndsConnections(t *testing.T) {
	left := make(chan struct{}, 2)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	c := s.client(t)
	for _, rt := range []http.RoundTripper{c.own.shared, c.feed} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatal(resp.Proto)
		}
		defer resp.Body.Close()
	}
	c.Close()
	<-left
	<-left
	if _, err := c.health.Conns().Dial((&net.Dialer{}).DialContext, c.health.Server(), new(atomic.Int64), false)(t.Context(), "tcp", s.Listener.Addr().String()); !errors.Is(err, health.ErrClosed) {
		t.Errorf("a closed client connects: %v", err)
	}
}
