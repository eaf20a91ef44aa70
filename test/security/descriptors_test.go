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

// Where few files may be open, clients that keep their connections leave enough for the admin listener, for what is
// forwarded and for the feeds, and others are told at once that there is no room.
func TestOpenConnectionsDoNotTakeAllDescriptors(t *testing.T) {
	limited := filepath.Join(t.TempDir(), "kubeweir")
	must(t, os.WriteFile(limited, []byte("#!/bin/sh\nulimit -n 256\nexec '"+program+"' \"$@\"\n"), 0o700))
	ctx := deadline(t, time.Minute)
	g, err := realkube.StartGatewayWith(ctx, kube, realkube.GatewayOptions{Path: limited})
	must(t, err)
	t.Cleanup(g.Close)
	first := dial(t, g.URL(), nil, "http/1.1")
	refused := 0
	cfg := tlsConfig(t, nil, "http/1.1")
	for range 300 {
		d := tls.Dialer{Config: cfg, NetDialer: &net.Dialer{Timeout: 5 * time.Second}}
		conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(g.URL(), "https://"))
		if err != nil {
			refused++
			continue
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if refused < 300-128 {
		t.Errorf("%d of 300 connections are refused", refused)
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if limit := m.Sum("kubeweir_connections_limit", nil); limit != 128 {
		t.Errorf("the limit is %v", limit)
	}
	// A request that is forwarded, over a connection that was there before.
	if a := roundTrip(t, first, "GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+kube.AdminToken()+"\r\n\r\n"); a.status != 200 {
		t.Errorf("a request that is forwarded: %s", a)
	}
	if n := strings.Count(g.Log(), "connections are refused"); n != 1 || strings.Contains(g.Log(), "too many open files") {
		t.Errorf("%d lines of refused connections:\n%s", n, g.Log())
	}
}
