// Package h1 serves HTTP/1.1, and HTTP/1.0, on the connections of package edge: Serve is
// edge.Protocols.HTTP1. It is the only package that knows fasthttp.
//
//	+--> wait --> read header --> copy it --> handler --> write response --+
//	|   (idle,   (fasthttp's    (one string)                |              |
//	|  no buffer)  parser)                                  +--> Stream: a fresh goroutine that only reads
//	+---------------------- keep-alive <--------------------+--> Duplex: a Stream that receives, too
//	                                                        +--> Upgrade: the connection itself
//
// Messages are fasthttp's: its parser, its framing of request bodies, its status texts. Its Server
// is not used, for three reasons. Its header limit is the size of a read buffer that every open
// connection holds; ours is small, a header that does not fit is parsed again from a large pooled
// one, and an idle connection holds none. It copies bodies through a 4 KB writer, where a list of
// 30 MB should be handed to TLS in records of full size. And a hijacked watch keeps the context and
// the buffers of its request, where ours keeps a goroutine with a small stack.
//
// A handler owns the request that it gets: no byte of it is in a buffer of the transport.
package h1
