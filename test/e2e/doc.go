// Package e2e tests `kubeweir gateway` as a program: unmodified clients, a real kube-apiserver behind it, both killed
// and restarted while clients look on. What is compared with is always kube-apiserver itself, or the history in etcd.
//
// The tests of the package share one cluster and run one after another; each starts a gateway of its own.
// KUBEWEIR_BINARY names a program to test instead of building cmd/kubeweir.
package e2e
