// Package checkpoint saves collections to disk, so that a restarted process resumes its watches
// instead of listing everything again.
//
// A Checkpointer serves all collections of a Manager, a Checkpoint one of them. The saver (save.go)
// writes changes behind the collections, never on the way of a request. Loading (load.go) returns a
// state and what was true when it was saved; the reflector confirms it with the source before
// anybody reads it, unless Options.ServeUnconfirmed allows otherwise.
//
// Promises: a checkpoint on disk is always of one version. It is used only for the same cluster,
// the same definition of the resource and within Options.MaxAge, and not after any collection
// turned out to have a history other than the source's. A disk that does not respond delays a
// collection by a few seconds at most.
//
// A Note is saved with the objects of a collection. To save something else, add a field to Note,
// set it in Reflector.Note and read it back in Reflector.load (both in reflector/warm.go).
//
// Storage is the interface to the disk, implemented by package state. The Manager creates a
// Checkpointer and passes it what to save, as a Collection each; the reflector loads with it. It
// imports source and store.
package checkpoint
