// Package edge is the transport: it serves an api.Handler over HTTP/1.1, HTTP/2
// and TLS, and is the only package that knows any of them.
//
//	          accept                    one goroutine a connection
//	listener -------> TLS handshake --> ALPN "h2" -----> x/net/http2, one goroutine a stream
//	                  (secure only)     otherwise -----> HTTP/1.1 loop:
//
//	    +--> wait --> read head --> own it --> Handler.Serve --> write response --+
//	    |   (idle,   (fasthttp's   (one copy)                |                    |
//	    |  no buffer)  parser)                               +--> Stream: a fresh goroutine that only reads
//	    +---------------------------- keep-alive <-----------+--> Upgrade: the connection itself
//
// HTTP/1.1 messages are fasthttp's: its parser, its body framing, its status
// texts and dates. Its Server is not used, for three reasons. Its header limit is
// the size of a read buffer that every open connection holds; ours is small, and
// a head that does not fit is parsed again from a large pooled one, and an idle
// connection holds none. It copies bodies through a 4 KB writer, where a list of
// 30 MB should be handed to TLS in records of full size. And a hijacked watch
// keeps the context and the buffers of its request, where ours keeps a goroutine
// with a small stack.
//
// A connection whose client asks again as soon as it is answered, alone, waits for
// the next request in a system call of its thread instead of being parked; see
// Options.ThreadWait.
//
// What a handler gets is owned by it: no byte of it is a transport's buffer.
// Panics of a handler, a body or a stream end one response, never the process.
package edge
