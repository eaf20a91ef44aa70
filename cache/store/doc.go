// Package store holds the objects of one collection: the newest state, older ones, and what finds
// objects in them.
//
// The state is a copy-on-write tree. A Snapshot is the immutable state at one version; taking one
// costs nothing while nothing changes, and holding one costs only what was replaced since.
// Snapshots of older versions are retained for chunked lists, or made by undoing the events of the
// history. Indexes by label, field and shard are built on demand and dropped when they are not
// used.
//
// A Store has one writer at a time: whoever holds publish. Usually that is the reflector, through
// Install, Apply, Replace (diff.go) and Progress. The freshness check may advance the version that
// readers see through Confirm, which changes no state, and ConfirmUnchanged. Every change enters
// the state first and then the watchmux.Mux, so watchers never see an event that a reader cannot
// see.
//
// # Versions
//
// AppliedRV is the version up to which events were applied. LatestRV is the version that readers
// see: the same one, or a higher one for which a freshness check has proved that the state is the
// same (see ahead.go). CompleteRV and IsComplete say whether all changes of a version have arrived,
// because etcd gives several changes of one transaction the same version. None of them ever goes
// back.
//
// # Locks
//
// The order is retained.undo, publish, mu, retained.mu; waits.mu and the lock inside the mux are
// taken last. The lock of query.Columns lies between publish and mu. Readers hold none of them
// while they use a Snapshot.
//
// # Adding an index
//
// Labels and selectable fields are indexed by themselves; a new selectable field is a line in
// object/builtin.go. An index serves a kind of term of object.Filter. A new kind needs a TermKind
// and Equalities there, its value in valueOfTerm (index.go) and fieldTerm.value, whose default is
// the name, and a slot of wakeTerms in watchmux, which wakes watchers by it.
//
// The Collection creates the Store. The packages reflector, freshness, selfcheck and query use it;
// read, watch and checkpoint get Snapshots of it. It imports nothing else of the cache.
package store
