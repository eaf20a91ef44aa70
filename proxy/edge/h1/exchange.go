package h1

import (
	"bytes"
	"errors"
	"io"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// conn is an HTTP/1.1 connection.
type conn struct {
	*edge.Conn
	// resume continues with the next request, whose first byte has arrived.
	resume func()
}

// verdict is what to do with a connection after a request.
type verdict uint8

const (
	keepOpen verdict = iota // wait for the next request
	closeNow
	// linger lets a client that is still sending read the response first.
	linger
	// handedOver: another goroutine owns the connection now.
	handedOver
)

// exchange is one request and its response, with everything that lives as long
// as they: one allocation, which the handler may keep.
type exchange struct {
	c    *conn
	req  api.Request
	ctx  requestContext
	body body

	// http10 and head describe the request as far as its response depends on it. keepAlive is true
	// if the client wants to keep the connection.
	http10, head, keepAlive bool
	// expects is set when the client waits for a 100 before it sends its body.
	expects bool
	// mayUpgrade is set if a Connection line makes Upgrade lines effective.
	mayUpgrade bool
	// framed is set by a Content-Length or Transfer-Encoding line, mustClose by both or
	// by Connection: close, whatever other lines say.
	framed, mustClose bool

	// interim keeps an interim response out of the final one. It guards final, which is set when
	// that begins.
	interim sync.Mutex
	final   bool

	fields [edge.InlineFields]api.HeaderField
}

var crlfcrlf = []byte("\r\n\r\n")

var (
	errUnknownExpectation = errors.New("unknown expectation")
	errVersion            = errors.New("unknown version of HTTP")
)

// AttributeTo implements api.Attributor. An HTTP/1.1 connection holds nothing between two
// requests: it counts for the user of its request.
func (x *exchange) AttributeTo(user string) { x.c.AttributeTo(user) }

// copyHead copies the parsed request out of fasthttp's pooled one: a single string holds the
// method, the target and the header block as received, and everything else is a part of it.
//
// fasthttp has decided how the message is framed. A header block that it accepts but RFC 9112 does
// not is rejected here, because another parser could read it differently.
func (x *exchange) copyHead(h *fasthttp.RequestHeader) error {
	proto := h.Protocol()
	x.http10 = string(proto) == "HTTP/1.0"
	if !x.http10 && string(proto) != "HTTP/1.1" {
		return errVersion
	}
	block, target, method := h.RawHeaders(), h.RequestURI(), h.Method()
	if len(block) > 0 && !bytes.HasSuffix(block, crlfcrlf) {
		return edge.ErrBadRequest
	}
	scratch := x.c.Buffer(len(method) + len(target) + len(block))
	scratch.B = append(append(append(scratch.B, method...), target...), block...)
	text := string(scratch.B)
	x.c.Buffers.Put(scratch)

	r := &x.req
	x.c.Describe(r)
	r.Method, r.Proto, r.Attributor, r.Header = text[:len(method)], "HTTP/1.1", x, x.fields[:0]
	if x.http10 {
		r.Proto = "HTTP/1.0"
	}
	x.keepAlive, x.head = !x.http10, r.Method == "HEAD"
	text = text[len(method):]
	if err := x.cutHeader(text[len(target):]); err != nil {
		return err
	}
	if err := edge.SetTarget(r, text[:len(target)]); err != nil {
		return err
	}
	if !httpguts.ValidHostHeader(r.Host) {
		return edge.ErrBadRequest
	}
	return nil
}

// cutHeader cuts the lines of a header block.
func (x *exchange) cutHeader(block string) error {
	for block != "" {
		var line string
		line, block, _ = strings.Cut(block, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		// A line that begins with white space continues the one before (obsolete).
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return edge.ErrBadRequest
		}
		if err := x.addField(textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")); err != nil {
			return err
		}
	}
	if x.mayUpgrade && !x.http10 {
		x.req.Upgrade = strings.Join(x.req.Header.Values("Upgrade"), ", ")
	}
	return nil
}

// addField adds one header line. Lines that concern the connection take effect.
func (x *exchange) addField(name, value string) error {
	switch name {
	case "Host":
		x.req.Host = value
		return nil
	case "Transfer-Encoding", "Content-Length":
		// Said by Body and ContentLength; fasthttp has seen to them, and rejects either
		// twice. With both the client, or a proxy before it, may disagree on where the
		// next request begins (RFC 9112, section 6.3).
		x.mustClose = x.mustClose || x.framed
		x.framed = true
		return nil
	case "Connection":
		if edge.HasToken(value, "close") {
			x.mustClose = true
		} else if x.http10 && edge.HasToken(value, "keep-alive") {
			x.keepAlive = true
		}
		x.mayUpgrade = x.mayUpgrade || edge.HasToken(value, "upgrade")
	case "Expect":
		if !strings.EqualFold(value, "100-continue") {
			return errUnknownExpectation
		}
		x.expects = !x.http10
		return nil
	}
	x.req.Header = append(x.req.Header, api.HeaderField{Name: name, Value: value})
	return nil
}

// mayKeep reports whether the connection can serve another request after this one.
func (x *exchange) mayKeep(resp *api.Response) bool {
	if !x.keepAlive || x.mustClose || x.c.Draining.Load() || edge.WantsClose(resp.Header) {
		return false
	}
	if x.req.Body == nil {
		return true
	}
	left := x.body.remaining()
	return left >= 0 && left <= drainLimit
}

// finish ends everything that belongs to the request: the watching and reading of its connection,
// its context, its response. keep is true if the connection is wanted for another request.
func (x *exchange) finish(resp *api.Response, written int64, keep bool, err error) verdict {
	x.ctx.stopWatching()
	if x.req.Body != nil {
		x.body.seal()
	}
	x.ctx.Cancel()
	// Before the rest of a body is read: the client decides how long that takes.
	x.c.Done(resp, written, err)
	keep = keep && err == nil
	switch {
	case x.req.Body != nil && x.body.discard(keep) != 0:
		return linger
	case keep:
		return keepOpen
	}
	return closeNow
}

// requestContext is the context of a request. It watches for the client's leaving only once
// a caller asks for Done, because that takes a goroutine: most responses are complete before a
// client could leave.
type requestContext struct {
	edge.Context
	x *exchange

	// mu guards the fields below. It is locked before that of the body.
	mu sync.Mutex
	// watching is closed when the goroutine that watches has ended; nil without one.
	watching chan struct{}
	// wanted is set when a caller waits for the client to disconnect. stopped is set when watching
	// must not begin any more, because the disconnection is noticed in another way or the request
	// has ended.
	wanted, stopped bool
}

func (r *requestContext) Done() <-chan struct{} {
	done, first := r.Start()
	if first {
		r.mu.Lock()
		r.wanted = true
		r.mu.Unlock()
		r.watch()
	}
	return done
}

// watch starts the goroutine that reads ahead until something arrives: the next request, which
// stays in the buffer, or the end of the connection. It is called when a caller waits for the
// disconnection, and after the body, which comes first, was read.
func (r *requestContext) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wanted || r.stopped || r.watching != nil || r.x.req.Body != nil && !r.x.body.wasRead() {
		return
	}
	in := &r.x.c.In
	in.Acquire()
	buf := in.Buf
	n := buf.Buffered() + 1
	if n > buf.Size() || in.Resume() != nil {
		return
	}
	ended := make(chan struct{})
	r.watching = ended
	in.Mode = edge.ReadWait
	panics := r.x.c.Panics
	go func() {
		defer panics.Contain("connection")
		defer close(ended)
		if _, err := buf.Peek(n); err != nil && !edge.IsInterrupted(err) {
			r.Cancel()
		}
	}()
}

// stopWatching takes the reading side back from the watching goroutine. Nothing
// is watched any more afterwards.
func (r *requestContext) stopWatching() {
	r.mu.Lock()
	r.stopped = true
	watching := r.watching
	r.watching = nil
	r.mu.Unlock()
	if watching == nil {
		return
	}
	r.x.c.In.Interrupt()
	<-watching
	_ = r.x.c.In.Resume()
}

// beginFinal marks the begin of the final response.
func (x *exchange) beginFinal() {
	x.interim.Lock()
	x.final = true
	x.interim.Unlock()
}

// continue100 asks the client to send its body, unless it has got a response already.
func (x *exchange) continue100() error {
	x.interim.Lock()
	defer x.interim.Unlock()
	if x.final {
		return nil
	}
	_, err := io.WriteString(&x.c.Out, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// drainLimit is how much of an unread body is read to keep the connection, as in net/http.
const drainLimit = 256 << 10

// body is the body of a request. One goroutine at a time reads it, which need not be the
// connection's: an HTTP client sends a body from its own goroutine and may still do so when the
// response is complete.
type body struct {
	x *exchange
	// length is the Content-Length, -1 for a chunked body.
	length int64

	// reading is held while the body is read, and guards what reads it.
	reading sync.Mutex
	req     *fasthttp.Request // pooled: given back by discard
	started bool

	// mu is held for moments, and guards how far reading is. It is taken last.
	mu     sync.Mutex
	read   int64
	err    error // final, io.EOF at the end
	sealed bool
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if err := b.ended(); err != nil || len(p) == 0 {
		return 0, err
	}
	return b.advance(p)
}

// SetReadDeadline bounds the reading of the whole body, see api.Request. It is for
// the goroutine that reads.
func (b *body) SetReadDeadline(t time.Time) error {
	b.x.c.In.Limit = t
	return nil
}

// ended is why nothing can be read any more, nil while something can.
func (b *body) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return edge.ErrBodyClosed
	}
	return b.err
}

// wasRead reports whether the body has been read to its end.
func (b *body) wasRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF //nolint:errorlint // Readers return it bare.
}

// advance continues to read and records the progress. The caller holds reading.
func (b *body) advance(p []byte) (int, error) {
	n, err := b.readOn(p)
	b.mu.Lock()
	b.read += int64(n)
	if errors.Is(err, io.EOF) && b.length >= 0 && b.read < b.length {
		err = io.ErrUnexpectedEOF // fasthttp takes a lost client for the end of the body
	}
	b.err = err
	b.mu.Unlock()
	if err == io.EOF { //nolint:errorlint // Readers return it bare.
		b.x.ctx.watch()
	}
	return n, err
}

// readOn reads from the connection. The caller holds reading.
func (b *body) readOn(p []byte) (int, error) {
	if !b.started {
		b.started = true
		if b.x.expects {
			if err := b.x.continue100(); err != nil {
				return 0, err
			}
		}
		// The limit of 0 bytes applies to what is read ahead.
		if err := b.req.ContinueReadBodyStream(b.x.c.In.Buf, 0, false); err != nil {
			return 0, err
		}
	}
	stream := b.req.BodyStream()
	if stream == nil {
		return 0, io.EOF
	}
	return stream.Read(p)
}

// remaining returns how much the client may still send: 0 when the body was read, -1
// when that is not known, or when it waits for a 100 that will not come.
func (b *body) remaining() int64 {
	if !b.reading.TryLock() {
		return -1 // another goroutine is reading
	}
	defer b.reading.Unlock()
	return b.left()
}

// left is remaining for callers that hold reading.
func (b *body) left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == io.EOF: //nolint:errorlint // Readers return it bare.
		return 0
	case b.err != nil, b.length < 0, b.x.expects && !b.started:
		return -1
	}
	return b.length - b.read
}

// seal ends all reading by others, also a read that is under way.
func (b *body) seal() {
	if !b.reading.TryLock() {
		b.x.c.In.Interrupt()
		b.reading.Lock()
		_ = b.x.c.In.Resume()
	}
	defer b.reading.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
}

// discard reads the rest of a sealed body if it is short and the connection is to be kept, and
// frees the read buffer. It returns how many bytes may still arrive, as remaining does.
func (b *body) discard(keep bool) (left int64) {
	// reading is not held: others who read find the body sealed, and are not to wait for the
	// client.
	left = b.left()
	if keep && left > 0 {
		buf := b.x.c.Buffer(edge.SmallBuffer)
		defer b.x.c.Buffers.Put(buf)
		for left > 0 {
			_, _ = b.advance(buf.B[:cap(buf.B)])
			left = b.left()
		}
	}
	if b.req != nil {
		_ = b.req.CloseBodyStream()
		fasthttp.ReleaseRequest(b.req)
		b.req = nil
	}
	return left
}
