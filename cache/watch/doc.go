// Package watch serves client watches from a collection.
//
// A watch is a cursor into the collection's ring of events (package watchmux) and a filter. It has
// no goroutine of its own: events, timers and its end queue it, and a few writers deliver to all
// watches. A client that does not read costs one goroutine and delays the others by a few
// milliseconds once.
//
// Watches.Watch serves a request (watches.go); the response is a stream that the edge starts
// (serve.go). A watch sends the objects that exist at its start, if requested (initial.go), then
// events (deliver.go), and bookmarks when they are due (writeBookmark in finish.go). It may
// coalesce events and be limited to a rate of bytes (coalesce.go). Events that several watches send
// in the same form are encoded once, by package form.
//
// Promises: every event that the filter selects is sent once and in order. A bookmark is never
// below what was sent. A watch ends with 410 Gone if it falls behind the history, if its collection
// is replaced (the upstream's versions went back, or the self-check found a difference), or if the
// namespaces change that its client may see; it ends with 500 if an object cannot be rendered. All
// other ends are clean, also when the collection is dropped because its definition has changed
// (finish.go). Each end has a reason of package reason.
//
// The proxy creates one Watches and passes it authorized requests. The package imports read, form
// and store.
package watch
