// Package read serves gets and lists from a collection, byte for byte like kube-apiserver.
//
// Reader.Get and Reader.List implement the matrix of resourceVersion, resourceVersionMatch, limit
// and continue of k8s.io/apiserver/pkg/storage/cacher: they choose a snapshot (resolve, and
// resolveContinue for continue tokens, in select.go), select objects from it (selectFrom) and let
// package form render them. Reader.Revalidate serves a list of the most recent state by comparing
// the versions that the upstream names. Lists with sortBy, where, fields or countBy are evaluated
// by package query.
//
// A read that the cache cannot serve exactly like the upstream ends in ErrForward with a reason of
// package reason, and the request is forwarded. An error that the upstream would return, too, is a
// Status error.
//
// Responses hold snapshots, which are immutable, so a slow client blocks nobody. A scan of many
// objects ends soon after its client has left.
//
// The proxy calls a Reader, and package watch uses its selections. The package sees a collection
// only through the interface Collection. It may import source, store, freshness, query and form.
package read
