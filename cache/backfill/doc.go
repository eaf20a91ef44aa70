// Package backfill extends the history of a collection backwards, so that watches from before it
// are served from the cache.
//
// The history of a collection begins with its first list, or with its checkpoint. After a restart of
// the gateway, clients resume their watches at versions before that, and clients that listed at the
// upstream while the collection was starting watch from there. Forwarding each of these watches
// would cost the upstream a watch for each client. Instead, a Backfiller reads the missing events
// with one short watch of the upstream, and prepends them (store.Store.Prepend, which checks that
// they lead to the state at which the history begins).
//
// # Previous states
//
// A watch does not tell the state before the first event of an object. Only watches with selectors of
// labels or fields depend on it. For these, the Backfiller lists the objects that have such events at
// the version from which the watch starts.
//
// # Bounds
//
// Events and bytes are bounded by the history (watchmux.Mux.Room). Each collection has one run at a
// time, all collections together have Slots runs. Requests for one step of a run end after stepLimit.
// A step that has no callers any more is canceled.
//
// A resource without bookmarks can hardly be extended unless it changes: as a rule only a later event,
// or a bookmark, says that nothing is missing. kube-apiserver sends no bookmarks for Events, and
// aggregated API servers need not send any. After such a failure, the Backfiller rejects callers for
// pauseAfter.
//
// The package imports reflector, store and source.
package backfill
