package upstream

import (
	"net/http"
	"testing"
)

// TestHeartbeatGetsResponse by Go's server itself, over both protocols.
func TestHeartbeatGetsResponse(t *testing.T) {
	for name, options := range map[string][]serverOption{"HTTP/2": nil, "HTTP/1.1": {http1Only}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was asked") }, options...)
			c := s.client(t)
			c.health.Lag()
			eventually(t, "an answer", func() bool { _, known := c.health.RTT(); return known })
		})
	}
}
