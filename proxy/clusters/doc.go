// Package clusters serves several clusters behind one gateway.
//
// A Router finds the cluster of a request and hands the request to the handler of that cluster. The
// Host header (in HTTP/2, the :authority) decides; if it names no cluster, a path prefix with the
// cluster's name does; otherwise the TLS server name. The handler sees paths without the prefix.
//
// Promises: a request never reaches another cluster than the one it names, dot segments and
// contradicting names are rejected, and rejections do not name clusters, because the client is not
// authenticated yet. Each cluster gets a fair share of the slots of all clusters. A cluster that is
// removed serves the requests in flight to their end, see Target.Retire.
//
// Package serve makes the Router and changes its routes. The package imports inflight, healthz and
// the vocabulary (api, reason), not package proxy: a cluster is an api.Handler.
package clusters
