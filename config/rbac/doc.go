// Package rbac knows which rights `kubeweir gateway` needs at its cluster: the least that
// a configuration works with, what each right is for, and what happens without it.
package rbac
