// Package etcd tests origin/storage/etcd with a real etcd, and together with a real kube-apiserver.
package etcd
