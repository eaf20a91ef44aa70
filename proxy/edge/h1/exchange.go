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

// exchange is one HTTP/1.1 request on its way, with everything that lives as long
// as it: one allocation, which the handler may keep.
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

	// interim keeps an interim response out of a final one. It guards final, which is set when that begins.
	interim sync.Mutex
	final   bool

	fields [edge.InlineFields]api.HeaderField
}

var (
	errUnknownExpectation = errors.New("unknown expectation")
	errVersion            = errors.New("unknown version of HTTP")
)

// copyHead copies what fasthttp parsed out of its pooled request: one string holds the
// target and the header block as they came, and everything else is cut from it.
//
// fasthttp decided how the message is framed. What it accepts in other ways than
// RFC 9112 has it, so that the block could be read in two ways, is refused here.
func (x *exchange) copyHead(h *fasthttp.RequestHeader) error {
	c := x.c
	if proto := h.Protocol(); string(proto) != "HTTP/1.1" && string(proto) != "HTTP/1.0" {
		return errVersion
	}
	raw, target := h.RawHeaders(), h.RequestURI()
	if len(raw) > 0 && !bytes.HasSuffix(raw, crlfcrlf) {
		return edge.ErrBadRequest
	}
	scratch := c.Buffer(len(raw) + len(target))
	b := append(append(scratch.B, target...), raw...)
	text := string(b)
	scratch.B = b[:0]
	c.Buffers.Put(scratch)

	x.http10 = !h.IsHTTP11()
	x.keepAlive = !x.http10
	x.req = api.Request{
		Method:           methodName(h.Method()),
		Proto:            "HTTP/1.1",
		RemoteAddr:       c.Remote,
		PeerCertificates: c.Certs,
		ServerName:       c.Sni,
		Listener:         c.Listener,
		Attributor:       x,
		Header:           x.fields[:0],
	}
	if x.http10 {
		x.req.Proto = "HTTP/1.0"
	}
	x.head = x.req.Method == "HEAD"
	if err := x.cutHeader(text[len(target):]); err != nil {
		return err
	}
	if err := edge.SetTarget(&x.req, text[:len(target)]); err != nil {
		return err
	}
	if !httpguts.ValidHostHeader(x.req.Host) {
		return edge.ErrBadRequest
	}
	return nil
}

var crlfcrlf = []byte("\r\n\r\n")

// cutHeader cuts the lines of a header block.
func (x *exchange) cutHeader(block string) error {
	for block != "" {
		var line string
		line, block, _ = strings.Cut(block, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			break
		}
		colon := strings.IndexByte(line, ':')
		if colon < 0 {
			return edge.ErrBadRequest
		}
		name, value := line[:colon], strings.Trim(line[colon+1:], " \t")
		// A line that begins with white space continues the one before (obsolete).
		if !edge.ValidName(name) {
			return edge.ErrBadRequest
		}
		if !isCanonical(name) {
			name = textproto.CanonicalMIMEHeaderKey(name)
		}
		if err := x.addField(name, value); err != nil {
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
		// Said by Body and ContentLength; fasthttp has seen to them, and refuses either
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

// methodName avoids an allocation for the methods of the Kubernetes API.
func methodName(method []byte) string {
	switch string(method) {
	case "GET":
		return "GET"
	case "PUT":
		return "PUT"
	case "POST":
		return "POST"
	case "PATCH":
		return "PATCH"
	case "DELETE":
		return "DELETE"
	case "HEAD":
		return "HEAD"
	case "OPTIONS":
		return "OPTIONS"
	}
	return string(method)
}

// isCanonical says whether a valid name is in the form of
// textproto.CanonicalMIMEHeaderKey.
func isCanonical(name string) bool {
	upper := true
	for i := range len(name) {
		b := name[i]
		if upper && 'a' <= b && b <= 'z' || !upper && 'A' <= b && b <= 'Z' {
			return false
		}
		upper = b == '-'
	}
	return true
}

// AttributeTo implements api.Attributor. An HTTP/1.1 connection holds nothing between two
// requests: it is whose its request is.
func (x *exchange) AttributeTo(user string) { x.c.AttributeTo(user) }
