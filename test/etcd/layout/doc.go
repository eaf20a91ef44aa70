// Package layout tests that an origin and a kube-apiserver on one etcd store objects under the same
// keys and in the same bytes, so that each can take over from the other. It also runs apiserver's
// own tests of storage.Interface on etcd.
package layout
