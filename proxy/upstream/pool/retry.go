package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"strings"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// How often net/http may send one request: to a single server, and to each of several, of
// which the next is better than a pause.
const (
	MostSends     = 3
	MostSendsEach = 2
)

var errTurnedAway = errors.New("the upstream turns the request away again and again, unprocessed")

// Sends bounds how often net/http sends one request by itself, for which that has no bound, or
// a late one. It sends again
//
//   - over HTTP/1.1, on a connection that was used before: if nothing was written to it; and a
//     GET, HEAD or OPTIONS, or what has an Idempotency-Key, also if it broke before the answer.
//     Upgrades therefore get a new connection, and requestHeader disguises that key;
//   - over HTTP/2: if the connection takes no more, or if the server says that it did not
//     process it, by a GOAWAY for streams before it or by REFUSED_STREAM. What was ended by
//     PROTOCOL_ERROR, which may be after it was processed, is sent again by the code of
//     HTTP/2 in net/http (golang.org/issue/47635), but not by that of golang.org/x/net, which
//     is therefore used (transports; http2_guard.go sees to it).
//
// So nothing that changes something is sent again if it may have been processed, and what looks
// for a connection again was not, wherever it was sent before: if none is found, because the
// server that turned it away has gone meanwhile, it surely was not processed. It is used by one
// goroutine at a time.
//
// A nil one has no bound.
type Sends struct{ n, most int }

// NewSends returns a bound of most.
func NewSends(most int) *Sends { return &Sends{most: most} }

// Sent is called before the request is sent on a connection, and may end it by end.
func (s *Sends) Sent(info httptrace.GotConnInfo, end context.CancelCauseFunc) {
	if s == nil {
		return
	}
	if s.n++; s.n <= s.most {
		return
	}
	end(errTurnedAway)
	// Over HTTP/2 what has ended is not written any more. Over HTTP/1.1 it might be.
	if c, ok := info.Conn.(*tls.Conn); !ok || c.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		_ = info.Conn.Close()
	}
}

// Trace is ctx, which end ends, with s.
func (s *Sends) Trace(ctx context.Context, end context.CancelCauseFunc) context.Context {
	if s == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { s.Sent(info, end) }})
}

// What golang.org/x/net and net/http say of requests that were not processed, in errors that have
// no type and do not wrap the reason. Should they be worded otherwise some time, what is said of
// such a write is that nobody knows.
const (
	// cannotRetry begins what is said of one that the server has told it did not process, and
	// whose body is gone.
	cannotRetry = "http2: Transport: cannot retry err ["
	// cannotRewind is said of one whose body was closed unread, because its connection took no
	// more requests: anything else that net/http would send again has its body.
	cannotRewind = "net/http: cannot rewind body after connection loss"
	// notEstablished is said of the first one on a connection that has ended before.
	notEstablished = "http2: client conn could not be established"
)

// Safe reports whether a method only reads.
func Safe(method string) bool { return method == "GET" || method == "HEAD" || method == "OPTIONS" }

// Unprocessed reports whether what changes something, and failed with err, surely was not
// processed by a server: it could not be sent, or was turned away.
func Unprocessed(err error) bool {
	var stream http2.StreamError
	said := err.Error()
	return health.Unconnected(err) || errors.Is(err, errTurnedAway) ||
		strings.HasPrefix(said, cannotRetry) || said == cannotRewind || said == notEstablished ||
		errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}
