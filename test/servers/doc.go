// Package servers shows what clients of a gateway notice of the three kube-apiservers behind it, on one etcd, being
// killed, stopped and frozen in turn: of reads and watches that the cache answers nothing, and of writes at most that
// one's outcome is not known; and that servers are found which come and go.
package servers
