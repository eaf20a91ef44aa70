// Package fairness is kube-apiserver's priority and fairness (KEP-1040) for a server whose cached
// reads do not pass its filters.
//
// The queues, the limits and the filter are the library's (k8s.io/apiserver/pkg/util/flowcontrol).
// This package adds what a cache in front of the server needs:
//
//   - Classify finds the flow schema and the priority level of a request without queueing it. It
//     costs about 100 ns, because a cached read costs a few microseconds.
//   - Classify also reports whether the priority level has a free seat. Reads from memory take no
//     seat while there is one: they end before other requests would notice. If there is none, they
//     wait or are rejected like all other requests (Serve).
//
// The configuration that Classify uses is that of the library's controller: the queue sets report
// (queuesets.go) when the controller has read the objects, and Classify reads them at the next
// request. A response that is sent after the controller has written the status of a FlowSchema is
// thus classified by it.
package fairness
