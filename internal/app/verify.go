package app

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/admin"
)

// verify compares what is cached with its upstream.
func (c *cluster) verify(ctx context.Context, which func(schema.GroupVersionResource) bool) []admin.VerifiedCollection {
	var all []admin.VerifiedCollection
	for _, checked := range c.manager.Check(ctx, which) {
		found := admin.Found(checked)
		found.Cluster = c.name
		all = append(all, found)
	}
	return all
}

// verify does it for one cluster after the other.
func (s *clusterSet) verify(ctx context.Context, which func(schema.GroupVersionResource) bool) []admin.VerifiedCollection {
	var all []admin.VerifiedCollection
	for _, m := range *s.members.Load() {
		all = append(all, m.verify(ctx, which)...)
	}
	return all
}
