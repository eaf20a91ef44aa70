package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// How often net/http may send one request: to a single server, and to each of several, where the
// next server is better than a pause.
const (
	MaxSends     = 3
	MaxSendsEach = 2
)

var errTurnedAway = errors.New("the upstream turns the request away again and again, unprocessed")

// send bounds how often net/http sends req by itself, for which that has no bound, or a late one.
// net/http sends it again
//
//   - over HTTP/1.1, on a reused connection: if nothing was written to it; and a GET, HEAD or OPTIONS, or
//     a request with an Idempotency-Key, also if the connection broke before the response. Upgrades
//     therefore get a new connection, and package upstream disguises that key;
//   - over HTTP/2: if the connection takes no more requests, or if the server says that it did not
//     process this one, by a GOAWAY for streams before it or by REFUSED_STREAM. A request that was ended
//     by PROTOCOL_ERROR, maybe after it was processed, is sent again by net/http's own HTTP/2 client
//     (golang.org/issue/47635), but not by that of golang.org/x/net, which is therefore used;
//     http2_guard.go sees to it.
//
// So a write is never sent again if it may have been processed. A request that looks for a
// connection again was not processed, wherever it was sent before. If it then finds none, because
// the server that turned it away is gone, it certainly was not processed.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context()) // which ends with the response
	sent := 0
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { // before it is sent
		if sent++; sent <= t.maxSends {
			if info.Reused {
				awaitReader(info.Conn)
			}
			return
		}
		cancel(errTurnedAway)
		// Over HTTP/2 a canceled request is not written any more. Over HTTP/1.1 it might be.
		if c, ok := info.Conn.(*tls.Conn); !ok || c.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
			_ = info.Conn.Close()
		}
	}}
	resp, err := t.Transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		err = health.Cause(ctx, err)
		cancel(nil)
	}
	return resp, err
}

// Safe reports whether a method only reads (RFC 9110, 9.2.1).
func Safe(method string) bool { return method == "GET" || method == "HEAD" || method == "OPTIONS" }

// The errors of golang.org/x/net and net/http for requests that were not processed have no type and
// do not wrap the reason. If their wording changes, the outcome of such a write is reported as
// unknown.
const (
	// cannotRetry begins the error for a request that the server did not process, and whose body is
	// gone.
	cannotRetry = "http2: Transport: cannot retry err ["
	// cannotRewind is the error for a request whose body was closed unread, because its connection
	// took no more requests: anything else that net/http would send again has its body.
	cannotRewind = "net/http: cannot rewind body after connection loss"
	// notEstablished is the error for the first request on a connection that has ended before.
	notEstablished = "http2: client conn could not be established"
)

// Unprocessed reports whether a write that failed with err certainly was not processed by a server:
// it could not be sent, or was turned away.
func Unprocessed(err error) bool {
	var stream http2.StreamError
	text := err.Error()
	return health.Unconnected(err) || errors.Is(err, errTurnedAway) ||
		strings.HasPrefix(text, cannotRetry) || text == cannotRewind || text == notEstablished ||
		errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}
