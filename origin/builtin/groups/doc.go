// Package groups installs the API groups that are built into Kubernetes, those and
// in those versions that kube-apiserver v1.37 serves by default, in a
// genericapiserver.GenericAPIServer.
//
// The storages, with their strategies and subresources, are kube-apiserver's own
// (k8s.io/kubernetes/pkg/registry). The package differs from kube-apiserver in the time at which
// schemas are built: genericapiserver's InstallAPIGroups builds every schema before the first
// request, and this package builds schemas when one is needed.
package groups
