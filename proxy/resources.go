package proxy

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Resources finds the resources that may be served from the cache. See discovery.Resources.
type Resources interface {
	// Lookup returns a resource if it may be served from the cache.
	Lookup(gvr schema.GroupVersionResource) (*source.Resource, bool)
	// Find is Lookup that also returns why the resource may not be served from the cache.
	Find(gvr schema.GroupVersionResource) (*source.Resource, reason.Forward)
	// Known returns the group and name of a resource that the upstream serves. It sends no request.
	Known(gvr schema.GroupVersionResource) (schema.GroupResource, bool)
}
