// Package reflector keeps a store equal to its source by a list and a watch, as client-go's
// reflector does.
//
// Reflector.Run is a state machine in one goroutine: list, watch, and after the end of a watch
// resume or list again (see type Reflector). run.go has the loop, resume.go and list.go how a list
// is made: as a streaming list where the source supports it, else paged; over slow links paged and
// merged with a watch (slow.go). A checkpoint replaces the first list when the source confirms it
// (warm.go). A source that was restored from a backup is recognized by its version, or by an object
// that it does not have (history.go).
//
// Reflector.State reports whether the store is being kept up to date, and since when it is not
// (health.go, which also has the backoff between attempts). Outage is what all reflectors of a
// Manager know about the server behind their source.
//
// Promises: no event is lost or applied twice. The version of a store never goes back: if the
// source's does, Run ends with store.ErrRewound.
//
// The Manager runs one Reflector per collection; freshness and selfcheck use it. It imports source,
// store and checkpoint.
package reflector
