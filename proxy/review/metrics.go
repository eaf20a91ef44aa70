package review

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c with reg, if that is not nil, and returns it.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg != nil {
		reg.MustRegister(c)
	}
	return c
}

// Counters registers a counter with one label and returns the counters of all values of the label,
// so that counting takes no lookup in the registered vector.
func Counters[L ~string](reg prometheus.Registerer, name, help, label string, values ...L) map[L]prometheus.Counter {
	vec := Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	counters := make(map[L]prometheus.Counter, len(values))
	for _, value := range values {
		counters[value] = vec.WithLabelValues(string(value))
	}
	return counters
}
