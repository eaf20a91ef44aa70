package form

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
)

// transforms are the values of the label transform.
var transforms = [...]string{api.NoTransform: "none", api.Table: "table", api.PartialMetadata: "metadata"}

func newMetrics() metrics {
	m := metrics{
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_read_body_bytes_total",
			Help: "Bytes of get and list bodies served from the cache, by encoding, transform and content coding.",
		}, []string{"encoding", "transform", "coding"}),
	}
	for e := range m.bodies {
		for t := range m.bodies[e] {
			for c := range m.bodies[e][t] {
				m.bodies[e][t][c] = m.bytes.WithLabelValues(api.Encoding(e).String(), transforms[t], api.Compression(c).String())
			}
		}
	}
	return m
}

// wrote counts the n bytes of a body.
func (m *metrics) wrote(rep api.Representation, coding api.Compression, n int64) {
	m.bodies[rep.Encoding][rep.Transform][coding].Add(float64(n))
}
