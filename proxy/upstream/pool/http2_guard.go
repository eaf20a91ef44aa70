//go:build go1.27 && !http2legacy

package pool

// Since Go 1.27, golang.org/x/net/http2 wraps net/http's client, which may send a write
// again after PROTOCOL_ERROR although a server has applied it (see Transport.send).
// The tag http2legacy selects the client that does not.
var _ = buildWithTheTagHTTP2Legacy // go build -tags http2legacy
