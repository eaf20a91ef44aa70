// Package security attacks kubeweir over the wire, in front of a real kube-apiserver and
// standalone. Each test is named after what an attacker must not achieve; SECURITY.md states the
// guarantees.
package security
