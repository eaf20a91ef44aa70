// Package cache holds collections of Kubernetes objects, each fed by one watch of the
// upstream, and answers get, list and watch from them with kube-apiserver's semantics
// of resourceVersion, limit, continue and selectors.
//
// It does what client-go's reflector and store and kube-apiserver's watch cache
// (k8s.io/apiserver/pkg/storage/cacher) do together, but keeps objects as the bytes
// that the upstream sent and never decodes them. Six subsystems, told apart by the
// names of their files:
//
//	feed       feed*, source, outage, references: lists and watches a Source (the
//	           reflector) and applies what comes to a store. One goroutine a collection.
//	state      store*, view*, index*, collection*, entry, manager: the objects at the
//	           newest version as a copy-on-write tree, immutable Views of it, older
//	           versions made by undoing history, indexes of selectors; a Manager starts
//	           collections when they are first read and stops idle ones.
//	read       read*, revalidate: a Reader turns a request into a selection of a View,
//	           or into ErrForward with a reason (package reason).
//	query      query*: lists that are sorted, narrowed or counted by any path (package
//	           listquery), from columns of values that are made when somebody asks.
//	watch      watch*: a Watch is a cursor into the collection's ring of events
//	           (package watchmux); a few writers deliver to all watches.
//	kept       kept*, image, feed_kept: collections on disk (package state), from which a
//	           feed begins after a restart, and which a saver writes behind.
//
// How objects look to a client is package form's: their own bytes, their metadata, Table
// rows, the frames of events, compressed pieces.
//
// The way in is Source -> feed -> store.apply -> watchmux.Mux.Append. The ways out are
// Reader.Get and Reader.List (selection -> form.Renderer -> response) and Watches.Watch
// (watchStream -> form.Watch -> frames). Nothing calls back up: a store does not know its
// feed, a Mux does not know who reads, a form does not know what was selected.
//
// # Locks
//
// store.publish is taken before store.mu: who holds publish sees the state and the
// ring at one version. A view of the past is made under retained.undo, which is taken
// before both and before retained.mu. The others guard a few fields each, which stand
// beside them. Readers hold none while they write to a client: Views are immutable.
//
// # Failure
//
// A collection comes to be with its first complete list; before that there is an
// entry, of which nothing can be read. When the upstream cannot be reached, a
// collection is Stale and says since when; when its version goes back, it stops, its
// watches end with 410, and the Manager makes another. A panic ends the collection or
// the watch in which it happened (package contain).
package cache
