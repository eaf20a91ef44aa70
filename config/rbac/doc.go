// Package rbac computes the rights that `kubeweir gateway` needs at its cluster: the smallest set
// for a configuration, the purpose of each right, and what happens without it.
package rbac
