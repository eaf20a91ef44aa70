package proxy

import (
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/proxy/route"
)

// TestLateResponsesSayHowOldTheyAre: a feed may be slow and alive, because every late byte is a
// heartbeat.
func TestLateResponsesSayHowOldTheyAre(t *testing.T) {
	b := newGatewayBench(t, nil)
	for delay, want := range map[time.Duration]string{0: "", route.MinReportedAge - 1: "", route.MinReportedAge: "1", 29 * time.Second: "29"} {
		b.source.SetDelay(delay)
		status, _, h := b.do("GET /api/v1/pods?resourceVersion=0")
		if status != 200 || h.Get("Age") != want || (h.Get("Warning") != "") != (want != "") {
			t.Errorf("%v late: %d, %v", delay, status, h)
		}
	}
}
