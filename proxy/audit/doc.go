// Package audit records the requests that the gateway answers or forwards, as
// audit.k8s.io/v1 events of level Metadata, one JSON object a line: the form of
// kube-apiserver's own log, which never sees what is answered here. A forwarded
// request is in both, under one ID, when the upstream audits it. What an operator does at
// the console is recorded in the same form.
//
// Recording does not wait for reads: their events go through a bounded queue to one
// writer, and those that do not fit are dropped and counted. Events of what may have
// changed something have a queue of their own and are never dropped for want of room.
// An auditor has to watch kubeweir_audit_events_total{result="dropped"} and
// {result="failed"}.
package audit
