package inflight

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Overload counts the requests that are rejected for one reason. The zero value counts nothing.
type Overload struct {
	why        reason.Rejection
	byKind     prometheus.Counter
	rejections *reason.Counter
}

func (o *Overload) count() {
	if o.byKind != nil {
		o.byKind.Inc()
		o.rejections.Count(o.why)
	}
}

// Overloads makes the counters of requests that are rejected because no permit is free.
type Overloads struct {
	byKind     *prometheus.CounterVec
	rejections *reason.Counter
}

// NewOverloads registers the metric of rejected requests. registerer may be nil.
func NewOverloads(registerer prometheus.Registerer, rejections *reason.Counter) *Overloads {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_requests_rejected_total",
		Help: "Requests rejected with 429, by kind (see kubeweir_requests_in_flight) and reason: limit (no slot is free), share (the user holds too many slots), all and cluster (the same over several clusters).",
	}, []string{"kind", "reason"})
	if registerer != nil {
		registerer.MustRegister(rejected)
	}
	return &Overloads{rejected, rejections}
}

// Of returns an Overload that counts rejections of requests of a kind by a limit. kind and limit
// are values of the metric's labels. Each rejection is also counted under the reason why.
func (o *Overloads) Of(kind, limit string, why reason.Rejection) Overload {
	return Overload{why, o.byKind.WithLabelValues(kind, limit), o.rejections}
}

// RegisterMetrics registers, for semaphores by kind, the permits in use and the limits. registerer
// may be nil.
func RegisterMetrics(registerer prometheus.Registerer, semaphores map[string]*Semaphore) {
	if registerer == nil {
		return
	}
	for kind, s := range semaphores {
		labels := prometheus.Labels{"kind": kind}
		registerer.MustRegister(
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight", ConstLabels: labels,
				Help: "Requests in flight, by kind: short; long (watches, followed logs, upgraded connections); unidentified (the client is not authenticated yet); resumed (watches from before a history that cannot be extended, which the upstream continues; also counted as long); all-short and all-long (all clusters of a gateway together).",
			}, func() float64 { return float64(s.InUse()) }),
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight_limit", ConstLabels: labels,
				Help: "Limit on the requests in flight, above which requests are rejected; 0 means no limit.",
			}, func() float64 { return float64(s.Limit()) }),
		)
	}
}
