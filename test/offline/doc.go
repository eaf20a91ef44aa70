// Package offline tests which requests a gateway serves, and for whom, while its kube-apiserver is
// killed or frozen.
package offline
