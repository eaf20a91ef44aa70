// Package rbac tests the rights that `kubeweir rbac` prints against a real kube-apiserver: they
// suffice, and none is superfluous.
package rbac
