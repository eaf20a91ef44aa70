// Package offline holds tests of what a gateway answers, and to whom, while its
// kube-apiserver is killed or frozen.
package offline
