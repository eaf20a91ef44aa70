// Package faults shows what clients of a gateway get while the way to its kube-apiserver, or that itself, fails in one
// of many ways: which answers, how soon, how marked, and how long after the fault everything is as before.
package faults
