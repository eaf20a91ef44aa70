// Package audit records requests as audit.k8s.io/v1 events, by the policy and the backends of
// kube-apiserver (k8s.io/apiserver/pkg/audit and plugin/pkg/audit). kube-apiserver's own log never
// contains what the gateway serves from the cache. If the upstream audits a forwarded request, both
// logs have events of the same ID. An upstream in this process adds what it knows to the gateway's
// events, and has none of its own (Request.Context).
//
// Each backend has one of four modes. Three are kube-apiserver's: blocking, blocking-strict and batch.
// In the fourth, queue, requests do not wait for the backend while its queue has room: events of reads
// that do not fit are dropped and counted, those of other requests wait. Queues are bounded in events
// and bytes. Auditors have to watch kubeweir_audit_events_total{result="dropped"} and
// {result="failed"}.
//
// Packages proxy and console record; internal/app opens the log.
package audit
