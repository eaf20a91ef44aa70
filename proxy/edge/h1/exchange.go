package h1

import (
	"bytes"
	"errors"
	"net/textproto"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// exchange is one request and its response, with everything that lives as long
// as they: one allocation, which the handler may keep.
type exchange struct {
	c    *conn
	req  api.Request
	ctx  requestContext
	body body

	// http10 and head are what a response must know of its request; keepAlive says
	// that the client wants the connection kept.
	http10, head, keepAlive bool
	// expects is set when the client waits for a 100 before it sends its body.
	expects bool
	// mayUpgrade is set when a Connection line says that Upgrade lines count.
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

var (
	errUnknownExpectation = errors.New("unknown expectation")
	errVersion            = errors.New("unknown version of HTTP")
)

// AttributeTo implements api.Attributor. An HTTP/1.1 connection holds nothing between two
// requests: it counts for the user of its request.
func (x *exchange) AttributeTo(user string) { x.c.AttributeTo(user) }

// copyHead copies what fasthttp parsed out of its pooled request: one string holds the method, the
// target and the header block as they came, and everything else is cut from it.
//
// fasthttp decided how the message is framed. A block that it accepts in other ways than RFC 9112
// has it, so that it could be read in two ways, is rejected here.
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

// addField notes one line; those that concern the connection are acted on.
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

// finish ends everything that belongs to the request: nobody watches or reads its
// connection any more, its context ends, its response is told. keep says whether
// the connection is wanted for another request.
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
