//go:build go1.27 && !http2legacy

package upstream

// From Go 1.27 on, golang.org/x/net/http2 is a wrapper of net/http's client, which sends
// a write again after PROTOCOL_ERROR although a server may have applied it (see sends).
// The tag http2legacy selects the client that does not.
var _ = buildWithTheTagHTTP2Legacy // go build -tags http2legacy
