// Package edge is what transports have in common: it accepts connections, speaks TLS, and hands
// them to HTTP/1.1 (package h1) or HTTP/2 (package h2), which serve an api.Handler.
//
//	          accept                    one goroutine a connection
//	listener -------> TLS handshake --> ALPN "h2" or preface ----> Protocols.HTTP2
//	                  (secure only)     otherwise ---------------> Protocols.HTTP1
//
// A Conn has an Input, which holds no buffer while nothing comes, and an Output, which writes many
// TLS records at a time. Buffers accounts for the memory that clients cost which do not read, by
// user. Shared calls the handler and what its responses consist of: panics of a handler, a body or
// a stream end one response, never the process.
//
// Package serve starts a Server. Imports: the vocabulary of the module, no protocol.
package edge
