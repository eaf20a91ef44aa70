// Package audit records the reads that the gateway answers itself, which the
// upstream's audit log therefore never sees, as audit.k8s.io/v1 events of level
// Metadata, one JSON object a line: the form of kube-apiserver's own log.
//
// Recording never waits: events go through a bounded queue to one writer, and
// those that do not fit are dropped and counted. An auditor has to watch
// kubeweir_audit_events_total{result="dropped"} and {result="failed"}.
package audit
