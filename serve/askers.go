package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// askers is what the clusters of a process have in common of who asks.
type askers struct {
	processor *usage.Processor
	blocked   *proxy.Blocked
}

func newAskers(registerer prometheus.Registerer) *askers {
	return &askers{usage.NewProcessor(), proxy.NewBlocked(registerer)}
}
