package api

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"strings"
)

// Request is one request, owned by the handler: nothing in it aliases a
// transport's buffers, except Body, which is valid until the response was written
// (until its Done is called), so that a BodyTo may go on reading. A Stream may not:
// what its Request's Body still holds is dropped. An Upgrade begins where Body ends:
// before all of that was read it is refused. Reads of Body come from one goroutine at
// a time, which may be any, and fail once it is over.
type Request struct {
	Method string
	// Path is the decoded path; RawPath the path as it came on the wire (escaped).
	Path, RawPath string
	// RawQuery is the query without "?", as it came.
	RawQuery string
	Host     string
	// Header has the lines as they came, names in canonical form, but those about
	// the message's own framing (Host, Content-Length, Transfer-Encoding, Expect).
	Header Header
	// Upgrade is what the client asks to upgrade the connection to ("websocket",
	// "SPDY/3.1"), "" when it does not: its Upgrade lines count over HTTP/1.1 only,
	// and only when a Connection line says so. Over HTTP/2 it is "websocket" for an
	// extended CONNECT (RFC 8441), whose Method is GET here and which has the lines of an
	// upgrade, for who looks for those.
	Upgrade string
	// RemoteAddr is "ip:port" of the peer, or "@" for a unix socket.
	RemoteAddr string
	// PeerCertificates is the chain that the TLS client presented (not verified
	// against any CA yet); nil without one.
	PeerCertificates []*x509.Certificate
	// ServerName is the host that the TLS client asked for (SNI), "" if it named none.
	ServerName string
	// Proto is "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Proto string
	// Listener says which listener took the request.
	Listener Listener
	parsed   bool // that info was; here it takes no room
	// Body is the request body, nil when there is none. ContentLength is its
	// length in bytes, -1 when unknown (chunked). That of a connection has a method
	// SetReadDeadline(time.Time) error, which bounds the reading of the whole body and
	// is to be called before it; without, only the time between two bytes is bounded.
	Body          io.Reader
	ContentLength int64
	// Attributor is nil for a transport that need not know whose a request is.
	Attributor Attributor

	info RequestInfo
}

// Info is what the request asks for. Method, path and query are read once, at the
// first call, so that everyone who decides by them has read the same.
func (r *Request) Info() *RequestInfo {
	if !r.parsed {
		r.info, r.parsed = ParseRequestInfo(r.Method, r.Path, r.RawQuery), true
		// Not everyone takes an escaped slash for one.
		r.info.Exact = r.info.Exact && (r.Path == r.RawPath || strings.Count(r.Path, "/") == strings.Count(r.RawPath, "/"))
	}
	return &r.info
}

// PlainPath reports whether the path means the same to everyone who is on the way: it has no
// empty or dot segments but the end, no escaped slashes, and no characters that proxies
// disagree about.
func (r *Request) PlainPath() bool {
	if r.Path != r.RawPath && strings.Count(r.Path, "/") != strings.Count(r.RawPath, "/") {
		return false
	}
	path := strings.TrimSuffix(r.Path, "/")
	return path == "" || plainPath(path)
}

// AttributeTo tells the transport who the request is from. It is to be called as soon as
// that is known, at most once, and before the response is given.
func (r *Request) AttributeTo(user string) {
	if r.Attributor != nil {
		r.Attributor.AttributeTo(user)
	}
}

// Attributor is what a transport has for a request, so that who leaves much unread pays for
// it, and no other user: see Request.AttributeTo.
type Attributor interface{ AttributeTo(user string) }

// Listener tells the listeners of one process apart: what they may trust differs.
type Listener uint8

const (
	// ListenerSecure is the TLS listener with delegated identity.
	ListenerSecure Listener = iota
	// ListenerSidecar is the plaintext loopback or unix listener, where every
	// request has the gateway's own identity.
	ListenerSidecar
)

// Handler answers requests. Serve may be called from any number of goroutines;
// ctx ends when the client has left, where the transport can tell, or when the
// server is closed. Serve never returns nil.
type Handler interface {
	Serve(ctx context.Context, r *Request) *Response
}

// PiecesWriter is what a BodyTo may find that it writes to: it takes bytes which need
// not be in one slice.
type PiecesWriter interface {
	io.Writer
	// WritePieces writes the pieces one behind the other, and says how many bytes of
	// them; without an error, all. It keeps and changes nothing of what they hold.
	WritePieces(pieces [][]byte) (int, error)
}

// Response is the answer to one Request. At most one of Body, BodyTo, Stream
// and Upgrade is set; none means an empty body.
type Response struct {
	Status int
	Header Header
	// Body is the whole body, which must not change any more.
	Body []byte
	// BodyTo writes the whole body; Length is its size in bytes or -1. With a length,
	// writes are collected into large ones; without, the head is sent at once and
	// every write on its own as it comes, so it had better be large or urgent. It is
	// not called for HEAD.
	BodyTo io.WriterTo
	Length int64
	// Ready says that BodyTo waits for nothing, so that what it writes may be held
	// back until there is much of it, with or without a length.
	Ready bool
	// Stream is a long-running body (watch, log follow). If it is a Duplex the Status
	// is 101, only for requests with an Upgrade, and Header has the lines of the
	// agreement, which over HTTP/1.1 are sent as they are, and no others. Over HTTP/2 the
	// client gets a 200 without those that are of HTTP/1.1's handshake.
	Stream Stream
	// Upgrade takes over the connection of a client that asked for a protocol
	// upgrade, or its stream of HTTP/2, until it returns. Status and Header are as for
	// a Duplex, and were sent. Only for requests with an Upgrade.
	Upgrade func(conn net.Conn)
	// Started, when set, is called once when the header of a response with a Stream or an
	// Upgrade was sent, before that begins.
	Started func()
	// Done, when set, is called exactly once after the response was written or
	// given up, with the number of body bytes written and the write error. If the transport
	// has answered with another response, as it could not do what this one asks for, Status
	// is that one's by then.
	Done func(written int64, err error)
}

// Stream is a long-running response body that writes when it has something to
// say, so that an idle one holds no goroutine of its own.
type Stream interface {
	// Start begins delivery and returns without blocking on the client. It is
	// called once, after the response header was written.
	Start(w StreamWriter)
	// Stop is called exactly once, after the client left, the writer was closed
	// or the server shut down; when it returns nothing is written any more. It is
	// called even if Start never was, because the head could not be written or the
	// request was a HEAD.
	Stop()
}

// Duplex is a Stream whose client sends, too, as over a WebSocket. When it has closed its
// writer the transport waits a little for the client to end as well (RFC 6455, 7.1.1).
type Duplex interface {
	Stream
	// Receive takes what the client sends after its request, in order and in pieces of
	// any size, from Start on until Stop is called. It does not block or keep p. After an
	// error the rest of what the client sends is dropped; the response goes on.
	Receive(p []byte) error
}

// StreamWriter is what a transport offers to a Stream. Its methods may be
// called from any goroutine, WriteFrames by one at a time.
type StreamWriter interface {
	// WriteFrames writes the frames in one go and flushes them. The frames are
	// not kept. It blocks while the client does not read, up to the write
	// timeout of the transport; an error is final.
	WriteFrames(frames [][]byte) error
	// Close ends the response cleanly (EOF); later writes fail. It does not
	// block and may be called more than once.
	Close()
	// Abort ends the response so that the client sees that it is not complete: the
	// connection or HTTP/2 stream breaks. Otherwise it is like Close.
	Abort()
}

// SharedWriter is a StreamWriter whose connection carries other streams, too, so that
// frames of several can leave together.
type SharedWriter interface {
	StreamWriter
	// QueueFrames is WriteFrames for who has frames for others as well. It takes them
	// only if it need not wait for the client; they leave with the next Flush of any
	// stream of the connection, or before.
	QueueFrames(frames [][]byte) (taken bool)
	// Flush sends what is queued, of all streams of the connection. It does not wait for
	// the client.
	Flush()
}
