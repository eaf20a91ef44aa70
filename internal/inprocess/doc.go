// Package inprocess is the wire between an HTTP client and an http.Handler of the
// same process: an http.RoundTripper that calls the handler. What passes is what
// would pass over a connection, only without writing and parsing it: no bytes are
// framed, no headers packed, no TLS.
//
// It behaves like HTTP/1.1 where that can be seen: bodies stream both ways, a
// response begins when the handler flushes it, when it grows large or when the
// handler returns; the handler's context ends when the client closes the body; a
// handler that aborts breaks the body off. A handler that hijacks gets one end of
// a connection in memory, so that protocol upgrades work as well.
//
// Between the two are bounded buffers: a handler that is faster than its client
// waits, as it would for a socket.
package inprocess
