// Package envtest stands in for the programs with which envtest and similar test frameworks start an
// API server: kube-apiserver and etcd.
//
// ParseAPIServer turns kube-apiserver's flags into the configuration of a standalone. To make another
// flag honored, change flags.txt, and sameFlags or the method settings.
// Etcd is a server that responds to health checks and reports to FindStore where the objects are: in
// the memory of the kube-apiserver process, or in etcd's data directory. FillAssets makes a folder for
// KUBEBUILDER_ASSETS. Parent ends a process after the one that started it.
package envtest
