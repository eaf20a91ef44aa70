// Package faults tests what the clients of a gateway see while its kube-apiserver, or the network
// to it, fails: status codes, latency, staleness marks, and the time until everything has
// recovered.
package faults
