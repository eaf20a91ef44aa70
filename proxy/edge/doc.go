// Package edge is the transport: it serves an api.Handler over HTTP/1.1, HTTP/2
// and TLS, and is the only package that knows any of them.
//
//	          accept                    one goroutine a connection
//	listener -------> TLS handshake --> ALPN "h2" or preface ----> HTTP/2: frames, streams
//	                  (secure only)     otherwise -----> HTTP/1.1 loop:
//
//	    +--> wait --> read head --> own it --> Handler.Serve --> write response --+
//	    |   (idle,   (fasthttp's   (one copy)                |                    |
//	    |  no buffer)  parser)                               +--> Stream: a fresh goroutine that only reads
//	    +---------------------------- keep-alive <-----------+--> Duplex: a Stream that is told what comes
//	                                                         +--> Upgrade: the connection itself
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
// HTTP/2 is read with x/net/http2's Framer and hpack, and served by a loop of our own
// (http2.go), for the price of HTTP/1.1: the goroutine that reads a connection serves
// what is answered at once, and what all streams have to send is gathered into records
// of full size and few writes (output2.go). x/net's server has a goroutine for each
// stream and a write for each frame, and copies. What a client may ask for without use
// is bounded (limits2.go). To a handler a WebSocket over HTTP/2 (RFC 8441, tunnel2.go)
// is the upgrade that it would be over HTTP/1.1. The sidecar's listener takes HTTP/2 by prior knowledge.
//
// What a handler gets is owned by it: no byte of it is a transport's buffer.
// Panics of a handler, a body or a stream end one response, never the process.
package edge
