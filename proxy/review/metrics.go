package review

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Register registers c with reg, if there is one, and returns it.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg != nil {
		reg.MustRegister(c)
	}
	return c
}

// RegisterLimit registers the bound of what another metric shows.
func RegisterLimit(reg prometheus.Registerer, name, help string, most int) {
	Register(reg, gaugefunc.New(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(most) }))
}
