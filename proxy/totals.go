package proxy

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Totals sum up the requests since the start, as the metrics count them.
type Totals struct {
	// BySource has the sources of kubeweir_requests_total.
	BySource map[string]SourceTotals
	// Reads are gets, lists and watches of resources. Hits are those of them that the cache served,
	// or that shared an upstream request.
	Reads, Hits float64
	// Errors are responses with a code from 500 on.
	Errors float64
}

// SourceTotals are the totals of one source.
type SourceTotals struct{ Requests, Bytes float64 }

// Totals reads the counters.
func (g *Gateway) Totals() Totals {
	t := Totals{BySource: make(map[string]SourceTotals, 5)}
	g.account.metrics.mu.RLock()
	defer g.account.metrics.mu.RUnlock()
	seen := make(map[prometheus.Counter]bool, len(g.account.metrics.children)) // codes share their bytes
	for l, c := range g.account.metrics.children {
		n := totalOf(c.requests)
		of := t.BySource[string(l.source)]
		of.Requests += n
		if !seen[c.bytes] {
			seen[c.bytes] = true
			of.Bytes += totalOf(c.bytes)
		}
		t.BySource[string(l.source)] = of
		if l.code >= 500 {
			t.Errors += n
		}
		if l.resource != "" && (l.verb == "get" || l.verb == "list" || l.verb == "watch") {
			t.Reads += n
			if l.source == fromCache {
				t.Hits += n
			}
		}
	}
	t.Hits += totalOf(g.forwards.collapser.Saved())
	return t
}

func totalOf(c prometheus.Counter) float64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return m.GetCounter().GetValue()
}

// brief shortens a string whose length clients choose.
func brief(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "... (" + strconv.Itoa(len(s)) + " bytes)"
}
