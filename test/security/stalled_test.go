package security

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestClientsThatStopReadingDoNotTakeTheMemory checks that the buffered responses of clients that
// stop reading a list or a watch are bounded in total, and that other clients are not affected.
// proxy/edge tests how much memory that is.
func TestClientsThatStopReadingDoNotTakeTheMemory(t *testing.T) {
	g := startGateway(t)
	ctx := deadline(t, 2*time.Minute)
	const namespace = "/api/v1/namespaces/default/configmaps"
	for i := range 10 {
		body := fmt.Sprintf(`{"metadata":{"name":"stalled-%d","labels":{"test":"stalled"}},"data":{"x":%q}}`, i, strings.Repeat("x", 500<<10))
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", namespace, body); a.status != 201 {
			t.Fatal(a)
		}
	}
	t.Cleanup(func() {
		do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", namespace+"?labelSelector=test%3Dstalled", "")
	})
	list := namespace + "?resourceVersion=0&labelSelector=test%3Dstalled"
	want := do(ctx, t, g.URL(), kube.AdminToken(), "GET", list, "")
	const each = 100
	stall(t, g, each, list)
	stall(t, g, each, list+"&watch=1")
	metric := func(name string) float64 {
		m, err := g.Metrics(ctx)
		must(t, err)
		return m.Sum(name, nil)
	}
	poll(ctx, t, "all are answered", func() bool { return metric("kubeweir_requests_in_flight") >= 2*each })
	for range 5 {
		if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", list, ""); a.status != 200 || len(a.body) != len(want.body) {
			t.Fatalf("request of another client: %.100s", a)
		}
		if held, limit := metric("kubeweir_response_buffer_bytes"), metric("kubeweir_response_buffer_bytes_limit"); held > limit || held == 0 {
			t.Errorf("buffered responses hold %.0f bytes, limit is %.0f", held, limit)
		}
	}
}

// stall opens connections that request path and read nothing.
func stall(t *testing.T, g *realkube.Gateway, n int, path string) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	cfg := tlsConfig(t, nil, "http/1.1")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				conn, err := tls.DialWithDialer(&dialer, "tcp", strings.TrimPrefix(g.URL(), "https://"), cfg)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
				_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, kube.AdminToken())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
