// Package api is kubeweir's leaf vocabulary: requests and responses free of any
// transport, request attributes (RequestInfo), list options, resource versions,
// continue tokens, representations and Status errors, all in Kubernetes terms.
//
// It imports nothing of the project.
package api
