// Package etcd tests origin/storage/etcd on a real etcd, and beside a real kube-apiserver.
package etcd
