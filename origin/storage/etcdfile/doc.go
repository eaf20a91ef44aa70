// Package etcdfile writes the objects of a store as a snapshot of etcd, which `etcdutl snapshot restore`
// makes a cluster from. Through etcd's API the revisions of keys could not be kept; in a snapshot they can.
//
// The file is etcd's own database (go.etcd.io/etcd/server/v3/storage/schema, of etcd 3.5, which later versions
// migrate when they start), followed by the SHA-256 of it, as `etcdctl snapshot save` writes it.
package etcdfile
