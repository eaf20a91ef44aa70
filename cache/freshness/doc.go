// Package freshness determines how new a collection is compared with the API server behind it.
//
// A Checker finds a version that the store holds and that is at least as new as every write
// acknowledged before the call. Reads of the most recent state depend on it. The proof is in the
// comment of freshRound. Callers share rounds, so the load on the server does not grow with the
// number of readers. The proxy decides which reads need the proof (read.Request.MostRecent).
//
// Versions are the keys and versions of a list's objects at the server. Package read compares them
// with a selection (Reader.Revalidate), package selfcheck with a whole collection.
//
// A Checker advances its store, through Progress, Confirm and ConfirmUnchanged, and never changes
// objects. It has the reflector begin its watch again, wait for the source's confirmation of a
// loaded checkpoint, decode an object, and list versions. Each Collection has a Checker. The
// package imports reflector, store and source.
package freshness
