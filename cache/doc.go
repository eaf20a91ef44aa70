// Package cache holds collections of Kubernetes objects, each kept up to date by one watch of the
// upstream.
//
// It does what client-go's reflector and store and kube-apiserver's watch cache
// (k8s.io/apiserver/pkg/storage/cacher) do together, but keeps objects as the bytes that the
// upstream sent and never decodes them.
//
// This package is the facade: a Manager starts a Collection when it is first read and stops it when
// nobody uses it. The work is done by the packages below. Each knows only those before it:
//
//	source      the contract with an upstream
//	store       the state: tree, snapshots, indexes, retained versions, waiting for versions
//	query       columns of values for sortBy, where and countBy
//	checkpoint  collections saved for a warm start
//	reflector   list and watch into a store
//	backfill    older history for watches from before it
//	freshness   the proof that a collection is current
//	selfcheck   comparison with the upstream
//	read        gets and lists, from a Collection
//	watch       client watches, from a Collection
//
// Package form knows how objects look to a client. The way in is source.Source, Reflector.Run,
// Store.Apply, watchmux.Mux.Append. The ways out are Reader.Get and Reader.List in package read and
// Watches.Watch in package watch.
//
// # Life of a collection
//
// A Collection is made of the first complete list, or of a loaded checkpoint; before that there is
// an entry, from which nothing can be read. If the upstream cannot be reached, the collection is
// Stale and says since when. If the upstream's version goes back, the collection stops, its watches
// end with 410, and the next reader starts another one. A panic ends the collection in which it
// happened (package contain).
//
// # Locks
//
// Manager.mu guards the map of entries. The locks of the state are described in package store.
package cache
