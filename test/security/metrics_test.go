package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// scrape returns the gateway's metrics as text.
func scrape(ctx context.Context, t *testing.T, g *realkube.Gateway) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.AdminURL()+"/metrics", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != 200 {
		t.Fatalf("GET /metrics: %s %.200s", resp.Status, b)
	}
	return string(b)
}

// TestStrangersDoNotMakeUpMetrics checks that clients without credentials can neither create
// metrics or labels, nor cause a panic while a request is counted.
func TestStrangersDoNotMakeUpMetrics(t *testing.T) {
	g := startGateway(t)
	ctx := deadline(t, time.Minute)
	conn := dial(t, g.URL(), nil, "http/1.1")
	send := func(line string) {
		if a := roundTrip(t, conn, line+" HTTP/1.1\r\nHost: x\r\n\r\n"); a.status >= 500 {
			t.Errorf("%.60s: %s", line, a)
		}
	}
	send("GET /api/v1/pods")
	before := strings.Count(scrape(ctx, t, g), "\n")
	for i := range 50 {
		send(fmt.Sprintf("GET /apis/made%d%s/v1/up", i, strings.Repeat("x", 4000)))
		send(fmt.Sprintf("GET /api/v1/made-up-%d", i))
		send(fmt.Sprintf("MADEUP%d /version", i))
		send(fmt.Sprintf("GET /api/v1/%%ff%d", i))
		send(fmt.Sprintf("GET /apis/%%ff%d/v1/pods", i))
	}
	text := scrape(ctx, t, g)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# HELP") && strings.Contains(strings.ToLower(line), "made") {
			t.Errorf("a label has a value from the client: %.120s", line)
		}
	}
	if after := strings.Count(text, "\n"); after > before+300 {
		t.Errorf("the metrics grew from %d lines to %d", before, after)
	}
	if strings.Contains(g.Log(), "panic") {
		t.Error("counting a request panicked")
	}
}
