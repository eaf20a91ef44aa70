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
			Help: "Checkpoints of collections written, by result: saved, failed.",
		}, []string{"result"}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_state_loads_total",
			Help: "Checkpoints looked up at the start of a collection, by result: confirmed (used), absent, or dropped because it was damaged, old, redefined (resource definition changed), rewound (other or restored cluster), unreadable.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubeweir_state_save_seconds",
			Help:    "Time to write a checkpoint of a collection, including pauses for the write rate limit.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
}
