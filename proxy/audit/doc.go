// Package audit records the requests that the gateway answers or forwards, and what operators do at
// the console, as audit.k8s.io/v1 events of level Metadata, one JSON object a line. That is the form
// of kube-apiserver's own log, which never sees what the gateway answers from the cache. If the
// upstream audits a forwarded request, both logs have an event of the same ID.
//
// Recording does not wait for reads: their events go through a bounded queue to one writer, and
// those that do not fit are dropped and counted. Events of requests that may have changed something
// have a queue of their own and are never dropped for want of room. Auditors have to watch
// kubeweir_audit_events_total{result="dropped"} and {result="failed"}.
//
// Packages proxy and console record; serve opens the log. It imports the API vocabulary and what is
// internal.
package audit
