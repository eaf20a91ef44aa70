package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// TestScrapeWhileLabelSetsBegin: a scrape does not wait for a request that waits for the scrape; see
// internal/gaugefunc.
func TestScrapeWhileLabelSetsBegin(t *testing.T) {
	for round := range soak.Cases(5, 20) {
		r := prometheus.NewRegistry()
		m := newMetrics(r, func(gvr schema.GroupVersionResource) (schema.GroupResource, bool) { return gvr.GroupResource(), true })
		observe := func(n int) {
			x := &exchange{Facts: route.Facts{Info: &api.RequestInfo{}}, source: response.FromCache}
			x.Info.IsResourceRequest, x.Info.Verb, x.Info.Resource = true, "watch", fmt.Sprintf("r%d", n)
			m.observe(x, 101, 0)
		}
		for n := range 600 { // three metrics each
			observe(n)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			scraped := make(chan struct{})
			go func() {
				defer close(scraped)
				_, _ = r.Gather()
			}()
			for n := range 200 {
				observe(1000 + n)
			}
			<-scraped
		}()
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: the scrape and the requests wait for each other", round)
		}
	}
}
