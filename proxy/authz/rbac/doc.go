// Package rbac evaluates the RBAC objects of a cluster as kube-apiserver's authorizer does
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac). It only grants: what it does not grant,
// another authorizer of the cluster may.
//
// Cached are the Rules of the objects in the cache, and Offline those that decide while the cluster
// is unreachable. Follow reports changes.
package rbac
