package proxy

import (
	"context"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/explain"
	"github.com/kubeweir/kubeweir/proxy/healthz"
)

// Collections returns the status of all collections.
func (g *Gateway) Collections() []cache.CollectionStatus { return g.Manager.Status() }

// WatchesOpen returns the number of watches that the cache serves.
func (g *Gateway) WatchesOpen() int { return g.Options.Watches.Open() }

// OpenWatches returns the watches that the cache serves, in no order.
func (g *Gateway) OpenWatches() []watch.OpenWatch { return g.Options.Watches.List() }

// EndWatch ends a watch on behalf of an operator, and reports whether there is one of that ID.
func (g *Gateway) EndWatch(id uint64) bool {
	return g.Options.Watches.End(reason.WatchOperator, func(o *watch.OpenWatch) bool { return o.ID == id }) > 0
}

// Explain describes how a request would be served. It has no side effects and reveals nothing about
// objects.
func (g *Gateway) Explain(ctx context.Context, q explain.Question) (*explain.Explanation, error) {
	return explain.Explain(ctx, &explain.Gateway{
		Manager: g.Manager, Resources: g.Resources, Authenticator: g.Authenticator, Authorizer: g.Authorizer,
		Blocked: g.Blocked, Visible: g.visible, Rejections: &g.forwards.rejections, Coalescer: g.forwards.collapser,
		Discovered: g.Discovered, OpenAPI: g.memory.openAPIDocuments, Gather: g.gather,
	}, g.policy.Load(), q)
}

// Checks returns the results of the cluster's health checks.
func (g *Gateway) Checks() []healthz.CheckResult { return g.Health.Results() }
