package proxy

import (
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestCompressWatchLists: watch lists are compressed for who accepts it, unless the
// setting or the protocol says otherwise.
func TestCompressWatchLists(t *testing.T) {
	const list = "GET /api/v1/pods?watch=1&resourceVersion=0"
	for _, test := range []struct {
		name, line string
		off        bool
		header     []string
		want       string
	}{
		{name: "client-go", line: list, header: []string{"Accept-Encoding: gzip"}, want: "gzip"},
		{name: "browser", line: list, header: []string{"Accept-Encoding: gzip, deflate, br, zstd"}, want: "gzip"},
		{name: "zstd preferred", line: list, header: []string{"Accept-Encoding: gzip;q=0.5, zstd"}, want: "zstd"},
		{name: "with a weight", line: list, header: []string{"Accept-Encoding: gzip;q=1.0"}},
		{name: "not asked", line: list},
		{name: "switched off", line: list, off: true, header: []string{"Accept-Encoding: gzip"}},
		{name: "no initial events", line: list + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", header: []string{"Accept-Encoding: gzip"}},
		{name: "WebSocket", line: list, header: []string{"Accept-Encoding: gzip", "Upgrade: websocket", "Connection: Upgrade"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, func(o *Options) { o.CompressWatchLists = !test.off })
				for i := range 30 {
					b.source.Create(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("default/web-%d", i), "", 6000))
				}
				resp := b.gateway.Serve(t.Context(), request(test.line, test.header...))
				if got := resp.Header.Get("Content-Encoding"); got != test.want || resp.Status != 200 && resp.Upgrade == nil {
					t.Errorf("%d, Content-Encoding %q, want %q", resp.Status, got, test.want)
				}
				if resp.Stream != nil {
					resp.Stream.Stop()
				}
				resp.Done(0, nil)
			})
		})
	}
}
