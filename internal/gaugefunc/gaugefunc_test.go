package gaugefunc

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestScrapeDoesNotDeadlock uses a function that wants a lock whose holder wants a child of
// a vector with more metrics than a scrape has room for.
func TestScrapeDoesNotDeadlock(t *testing.T) {
	for round := range 50 {
		r := prometheus.NewRegistry()
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "many", Help: "."}, []string{"n"})
		for n := range 3000 {
			vec.WithLabelValues(fmt.Sprint(n))
		}
		var mu sync.Mutex
		children := 3000
		r.MustRegister(vec, New(prometheus.GaugeOpts{Name: "children", Help: "."}, func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return float64(children)
		}))
		var scraped sync.WaitGroup
		scraped.Go(func() {
			if _, err := r.Gather(); err != nil {
				t.Error(err)
			}
		})
		for range 100 {
			mu.Lock()
			vec.WithLabelValues(fmt.Sprint(children, round))
			children++
			mu.Unlock()
		}
		scraped.Wait()
	}
}

func TestFunctions(t *testing.T) {
	r := prometheus.NewRegistry()
	labels := prometheus.Labels{"kind": "x"}
	r.MustRegister(
		New(prometheus.GaugeOpts{Name: "a", Help: "A.", ConstLabels: labels}, func() float64 { return 1 }),
		NewCounter(prometheus.CounterOpts{Name: "b_total", Help: "B."}, func() float64 { return 2 }))
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP a A.
# TYPE a gauge
a{kind="x"} 1
# HELP b_total B.
# TYPE b_total counter
b_total 2
`)); err != nil {
		t.Error(err)
	}
	if err := r.Register(New(prometheus.GaugeOpts{Name: "a", Help: "A.", ConstLabels: labels}, nil)); err == nil {
		t.Error("registered twice")
	}
	r.MustRegister(New(prometheus.GaugeOpts{Name: "c", Help: "C."}, func() float64 { panic("c") }))
	if families, err := r.Gather(); err == nil || len(families) != 2 {
		t.Errorf("%v, %v", families, err)
	}
}
