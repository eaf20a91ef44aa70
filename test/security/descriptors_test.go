package security

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestOpenConnectionsDoNotTakeAllDescriptors checks that, under a low limit of open files,
// keep-alive connections leave enough descriptors for the admin listener, forwarded requests and
// reflectors. The gateway rejects further connections immediately.
func TestOpenConnectionsDoNotTakeAllDescriptors(t *testing.T) {
	limited := filepath.Join(t.TempDir(), "kubeweir")
	must(t, os.WriteFile(limited, []byte("#!/bin/sh\nulimit -n 256\nexec '"+program+"' \"$@\"\n"), 0o700))
	ctx := deadline(t, time.Minute)
	g, err := realkube.StartGatewayWith(ctx, kube, realkube.GatewayOptions{Path: limited})
	must(t, err)
	t.Cleanup(g.Close)
	first := dial(t, g.URL(), nil, "http/1.1")
	rejected := 0
	cfg := tlsConfig(t, nil, "http/1.1")
	for range 300 {
		d := tls.Dialer{Config: cfg, NetDialer: &net.Dialer{Timeout: 5 * time.Second}}
		conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(g.URL(), "https://"))
		if err != nil {
			rejected++
			continue
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if rejected < 300-128 {
		t.Errorf("%d of 300 connections were rejected", rejected)
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if limit := m.Sum("kubeweir_connections_limit", nil); limit != 128 {
		t.Errorf("the limit is %v", limit)
	}
	// Forward a request over a connection opened earlier.
	if a := roundTrip(t, first, "GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+kube.AdminToken()+"\r\n\r\n"); a.status != 200 {
		t.Errorf("forwarded request: %s", a)
	}
	if n := strings.Count(g.Log(), "connections are refused"); n != 1 || strings.Contains(g.Log(), "too many open files") {
		t.Errorf("%d log lines about rejected connections, want 1:\n%s", n, g.Log())
	}
}
