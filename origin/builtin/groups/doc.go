// Package groups installs the API groups that are built into Kubernetes, those and
// in those versions that kube-apiserver v1.37 serves by default, in a
// genericapiserver.GenericAPIServer.
//
// The storages, with their strategies and subresources, are kube-apiserver's own
// (k8s.io/kubernetes/pkg/registry). What differs from kube-apiserver is when things
// are made: genericapiserver's InstallAPIGroups builds every schema before the first
// request, here that waits until one is needed.
package groups
