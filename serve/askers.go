package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// askers is what the clusters of a process have in common of who asks.
type askers struct {
	processor *usage.Processor
	blocked   *policy.Blocked
}

func newAskers(registerer prometheus.Registerer) *askers {
	return &askers{usage.NewProcessor(), policy.NewBlocked(registerer)}
}
