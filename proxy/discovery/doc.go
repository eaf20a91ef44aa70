// Package discovery knows which resources the cluster serves, and which of them may be served from
// the cache.
//
// Catalog reads the discovery documents of the cluster. Resources finds built-in resources there, and
// custom resources by watching their definitions. Resources of aggregated API servers are served from the cache only
// if the configuration names their group. Document returns the discovery documents that clients
// read, for times when the cluster is unreachable.
//
// Package proxy looks up the resource of each request here; internal/app runs Catalog and Resources.
package discovery
