// Package rbac holds the tests of the rights that `kubeweir rbac` prints, at a real
// kube-apiserver: they are enough, and none of them is too many.
package rbac
