// Package watch serves client watches from a collection.
//
// A watch is a cursor into the collection's ring of events (package watchmux) and a filter. It has no
// goroutine of its own: events, timers and its end queue it, and a few writers deliver to all watches.
// A client that does not read costs one goroutine and delays the others by a few milliseconds once.
//
// Watches.Watch answers a request; the response is a stream that the edge starts. A watch sends the
// objects that exist at its start, if requested (initial.go), then events and bookmarks (stream.go). It
// may coalesce events and be limited to a rate of bytes (coalesce.go). Events that several watches
// send in the same form are encoded once, by package form.
//
// Promises: every event that the filter selects is sent once and in order. A bookmark is never below
// what was sent. A watch that falls behind the history, or whose collection stops because the
// upstream's versions went back, ends with 410 Gone; all other ends are clean, and each has a reason
// of package reason.
//
// The proxy creates one Watches and passes it authorized requests. The package may import source,
// store, read (for selections) and form.
package watch
