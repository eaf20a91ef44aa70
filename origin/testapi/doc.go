// Package testapi implements snapshots of all objects, fault injection and a clock for tests.
// `kubeweir standalone --test-api` serves it on the admin listener:
//
//	POST   /kubeweir/v1/reset                     restore the objects of the server's start, and forget older versions
//	PUT    /kubeweir/v1/snapshots/{name}          save all objects
//	POST   /kubeweir/v1/snapshots/{name}/restore  restore them
//	DELETE /kubeweir/v1/snapshots/{name}
//	POST   /kubeweir/v1/faults                    respond to the next matching requests with a fault
//	GET    /kubeweir/v1/faults                    the faults that are left
//	DELETE /kubeweir/v1/faults
//	POST   /kubeweir/v1/watches/end               end all watches, which clients then resume
//	POST   /kubeweir/v1/clock                     advance the clock by which the store expires objects
//
// Errors are plain text.
package testapi
