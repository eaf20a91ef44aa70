package checkpoint

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a Checkpointer.
type metrics struct {
	saves, loads *prometheus.CounterVec // by result
	seconds      prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		saves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_state_saves_total",
			Help: "Savings of collections for the next start, by result: saved, failed.",
		}, []string{"result"}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_state_loads_total",
			Help: "Collections looked for in the state of the last process, by result: confirmed (used), absent, or dropped because it was damaged, old, redefined (of another definition), rewound (of another or a restored cluster), unreadable.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubeweir_state_save_seconds",
			Help:    "Time that saving what changed in a collection took, with the pauses that the limit on the rate of writing makes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
}
