package api

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"strings"
)

// Request is one request, owned by the handler. Nothing in it aliases a transport's buffers except
// Body, which is valid until the response has been written (until its Done is called), so that a
// BodyTo may continue to read it. A Stream may not: the transport drops the rest of the Body. An
// Upgrade begins where Body ends, and is rejected before all of Body was read. One goroutine at a
// time may read Body. Reads fail once the request is over.
type Request struct {
	Method string
	// Path is the decoded path, RawPath the escaped path as sent.
	Path, RawPath string
	// RawQuery is the query without "?", as sent.
	RawQuery string
	Host     string
	// Header has the lines as sent, with canonical names, except those that frame the message
	// (Host, Content-Length, Transfer-Encoding, Expect).
	Header Header
	// Upgrade is the protocol that the client wants to upgrade the connection to ("websocket",
	// "SPDY/3.1"), "" without one. Over HTTP/1.1 Upgrade lines count only if a Connection line
	// names them. Over HTTP/2 it is "websocket" for an extended CONNECT (RFC 8441), whose Method is
	// GET here. That request has the header lines of an upgrade, for code that checks them.
	Upgrade string
	// RemoteAddr is "ip:port" of the peer, or "@" for a unix socket.
	RemoteAddr string
	// PeerCertificates is the chain that the TLS client presented, not yet verified against any CA;
	// nil without one.
	PeerCertificates []*x509.Certificate
	// ServerName is the host that the TLS client named (SNI), "" without one.
	ServerName string
	// Proto is "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Proto string
	// Listener is the listener that accepted the request.
	Listener Listener
	parsed   bool // whether info is set; here it takes no space
	// Body is the request body, nil without one. ContentLength is its length in bytes, -1 if
	// unknown (chunked). The Body of a network request has a method SetReadDeadline(time.Time)
	// error, which limits the time to read the whole body and must be called before reading;
	// otherwise only the time between two bytes is limited.
	Body          io.Reader
	ContentLength int64
	// Attributor is nil for a transport that does not need the request's user.
	Attributor Attributor

	info RequestInfo
}

// Info returns the parsed request. The first call parses method, path and query, so that all
// decisions are based on the same result.
func (r *Request) Info() *RequestInfo {
	if !r.parsed {
		r.info, r.parsed = ParseRequestInfo(r.Method, r.Path, r.RawQuery), true
		// Not every server treats an escaped slash as a slash.
		r.info.Exact = r.info.Exact && (r.Path == r.RawPath || strings.Count(r.Path, "/") == strings.Count(r.RawPath, "/"))
	}
	return &r.info
}

// PlainPath reports whether the path means the same to every server and proxy: it has no empty or
// dot segments except at the end, no escaped slashes, and no characters that proxies interpret
// differently.
func (r *Request) PlainPath() bool {
	if r.Path != r.RawPath && strings.Count(r.Path, "/") != strings.Count(r.RawPath, "/") {
		return false
	}
	path := strings.TrimSuffix(r.Path, "/")
	return path == "" || plainPath(path)
}

// AttributeTo reports the user of the request to the transport. Call it as soon as the user is
// known, at most once, and before responding.
func (r *Request) AttributeTo(user string) {
	if r.Attributor != nil {
		r.Attributor.AttributeTo(user)
	}
}

// Attributor attributes a request's unread response bytes to its user, so that they count against
// no other user: see Request.AttributeTo.
type Attributor interface{ AttributeTo(user string) }

// Listener identifies a listener of the process. Listeners differ in what they may trust.
type Listener uint8

const (
	// ListenerSecure is the TLS listener with delegated identity.
	ListenerSecure Listener = iota
	// ListenerSidecar is the plaintext loopback or unix listener, whose requests all have the
	// gateway's own identity.
	ListenerSidecar
)

// TestAPIPath is the prefix of the paths of package origin/testapi on the admin listener.
const TestAPIPath = "/kubeweir/v1/"

// SnapshotPath is the path of the API listener from which administrators of a standalone download a
// snapshot of its store.
const SnapshotPath = "/kubeweir/v1/snapshot"

// Handler responds to requests. Serve may be called by any number of goroutines. ctx ends when the
// client disconnects, if the transport can tell, or when the server is closed. Serve never returns
// nil.
type Handler interface {
	Serve(ctx context.Context, r *Request) *Response
}

// PiecesWriter is an optional interface of the writer that a BodyTo gets. It accepts bytes that are
// not in one slice.
type PiecesWriter interface {
	io.Writer
	// WritePieces writes the pieces in order and returns how many bytes it wrote, all if there is
	// no error. It does not retain or change them.
	WritePieces(pieces [][]byte) (int, error)
}

// Response is the response to one Request. At most one of Body, BodyTo, Stream and Upgrade is set;
// none means an empty body.
type Response struct {
	Status int
	Header Header
	// Body is the whole body. It must not change any more.
	Body []byte
	// BodyTo writes the whole body. Length is its size in bytes, or -1. With a length, writes are
	// collected into large ones. Without, the header is sent at once and every write immediately,
	// so writes should be large or urgent. BodyTo is not called for HEAD.
	BodyTo io.WriterTo
	Length int64
	// Ready is true if BodyTo never waits, so the transport may buffer what it writes, with or
	// without a length.
	Ready bool
	// Stream is a long-running body (watch, log follow). If it is a Duplex, Status is 101, only for
	// requests with an Upgrade, and Header has the lines of the handshake. Over HTTP/1.1 exactly
	// these lines are sent. Over HTTP/2 the client gets a 200 without those that belong to
	// HTTP/1.1's handshake.
	Stream Stream
	// Upgrade takes over the client's connection, or its HTTP/2 stream, until it returns. It is
	// only for requests with an Upgrade. Status and Header are as for a Duplex, and have been sent.
	Upgrade func(conn net.Conn)
	// Started, if set, is called once after the header of a response with a Stream or an Upgrade
	// was sent, before that begins.
	Started func()
	// Done, if set, is called exactly once after the response was written or abandoned, with the
	// number of body bytes written and the write error. If the transport had to send another
	// response instead, because it could not send this one, Status has been set to that one's.
	Done func(written int64, err error)
}

// Stream is a long-running response body that writes when it has data, so that an idle stream needs
// no goroutine of its own.
type Stream interface {
	// Start begins delivery and returns without waiting for the client. It is called once, after
	// the response header was written.
	Start(w StreamWriter)
	// Stop is called exactly once, after the client disconnected, the writer was closed or the
	// server shut down. Nothing is written after it returns. It is called even if Start was not,
	// because the header could not be written or the request was a HEAD.
	Stop()
}

// Duplex is a Stream whose client sends, too, as over a WebSocket. After it has closed its writer,
// the transport waits a little for the client to close as well (RFC 6455, 7.1.1).
type Duplex interface {
	Stream
	// Receive receives what the client sends after its request, in order and in pieces of any size,
	// from Start until Stop is called. It must not block or retain p. After an error the transport
	// drops what else the client sends; the response continues.
	Receive(p []byte) error
}

// StreamWriter is what a transport offers to a Stream. Its methods may be called from any
// goroutine, WriteFrames by one at a time.
type StreamWriter interface {
	// WriteFrames writes the frames together and flushes them. It does not retain them. It blocks
	// while the client does not read, up to the transport's write timeout. An error is final.
	WriteFrames(frames [][]byte) error
	// Close ends the response cleanly (EOF). Later writes fail. It does not block and may be called
	// more than once.
	Close()
	// Abort ends the response such that the client can tell that it is incomplete: the connection
	// or HTTP/2 stream breaks. Otherwise it is like Close.
	Abort()
}

// SharedWriter is a StreamWriter whose connection also carries other streams, so that frames of
// several streams can be sent together.
type SharedWriter interface {
	StreamWriter
	// QueueFrames is like WriteFrames, for callers that write to several streams of the connection.
	// It takes the frames only if it need not wait for the client. They are sent by the next Flush
	// of any stream of the connection, or earlier.
	QueueFrames(frames [][]byte) (taken bool)
	// Flush sends the queued frames of all streams of the connection. It does not wait for the
	// client.
	Flush()
}
