// Package servers tests a gateway in front of three kube-apiservers on one etcd, which are killed,
// stopped and frozen in turn. Cached reads and watches must not notice; the outcome of writes in
// flight may be unknown. It also tests the discovery of servers that are added and removed.
package servers
