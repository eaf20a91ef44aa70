// Package layout tests that an origin on etcd and a kube-apiserver on the same one keep
// the same objects: under the same keys, in the same bytes, so that either can go on
// where the other has stopped. apiserver's own tests of storage.Interface run here on etcd,
// too.
package layout
