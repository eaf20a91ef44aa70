package proxy

import "k8s.io/apimachinery/pkg/runtime/schema"

// Known returns the group and name of a resource that the upstream serves, cached or
// not, in strings that are not the caller's. It asks nobody.
func (r *Resources) Known(gvr schema.GroupVersionResource) (schema.GroupResource, bool) {
	r.mu.RLock()
	res := r.mu.builtin[gvr]
	if res == nil {
		res = r.mu.custom[gvr]
	}
	r.mu.RUnlock()
	if res != nil {
		return res.GroupResource(), true
	}
	server, ok := r.discovery.Known(gvr)
	return server.GroupResource(), ok
}
