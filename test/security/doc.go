// Package security attacks kubeweir over the wire, in front of a real kube-apiserver and alone. Every test is named
// after what must not happen; SECURITY.md says what is promised.
package security
