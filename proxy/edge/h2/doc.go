// Package h2 serves HTTP/2 (RFC 9113) on the connections of package edge: Serve is
// edge.Protocols.HTTP2.
//
// Frames are read with x/net/http2's Framer and hpack, and served by a loop of our own, for the
// price of HTTP/1.1: the goroutine that reads a connection serves requests whose responses need
// not wait, and what all streams have to send is gathered into records of full size and few
// writes. x/net's server has a goroutine for each stream and a write for each frame, and copies.
//
// The work that a client may cause without use is bounded (limits.go). To a handler a WebSocket
// over HTTP/2 (RFC 8441, tunnel.go) is the upgrade that it would be over HTTP/1.1. Without TLS
// HTTP/2 is spoken by prior knowledge.
//
// A handler owns the request that it gets: no byte of it is in a buffer of the transport.
package h2
