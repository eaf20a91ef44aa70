// Package e2e tests the program `kubeweir gateway` with unmodified clients and a real
// kube-apiserver, both of which are killed and restarted while clients are connected. The oracle is
// always kube-apiserver itself or the history in etcd.
//
// The tests of the package share one cluster and run one after another; each starts its own
// gateway. KUBEWEIR_BINARY names a program to test instead of building cmd/kubeweir.
package e2e
