package proxy

import (
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/reason"
)

// Collections are all that are cached.
func (g *Gateway) Collections() []cache.CollectionStatus { return g.Manager.Status() }

// WatchesOpen is how many watches are served from the cache.
func (g *Gateway) WatchesOpen() int { return g.Options.Watches.Open() }

// OpenWatches are those that are served from the cache, in no order.
func (g *Gateway) OpenWatches() []watch.OpenWatch { return g.Options.Watches.List() }

// EndWatch ends the watch of that ID as an operator asks for, and reports whether there is
// one.
func (g *Gateway) EndWatch(id uint64) bool {
	return g.Options.Watches.End(reason.WatchOperator, func(o *watch.OpenWatch) bool { return o.ID == id }) > 0
}

// Checks are the conditions of the cluster's health now.
func (g *Gateway) Checks() []healthz.CheckResult { return g.Health.Results() }
