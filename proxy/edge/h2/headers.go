package h2

import (
	"errors"
	"io"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// headers is a header that is being read: a HEADERS frame and the CONTINUATION frames after it.
type headers struct {
	open  bool // until its last frame was read
	block block
	id    uint32
	st    *stream // nil if it is nobody's
	ends  bool    // the stream ends with it
	// trailers is true if the header follows a body. It is decoded only to keep the HPACK table
	// consistent, and dropped.
	trailers bool
	size     int // of the decoded list, as RFC 9113, 6.5.2 counts it
	// malformed is true if the request gets no response, tooLarge if it gets a 431.
	malformed, tooLarge bool
	seen                seenFields
	pseudo              pseudoFields
	length              string
	cookies             cookies
}

// block is the encoded form of a header in several frames.
type block struct {
	frames int
	// parts is empty for a header of one frame, because the decoder would keep memory for
	// incomplete parts.
	parts []byte
	// held is how many bytes parts counts for among all buffers, account the account that is
	// charged.
	held    int
	account *edge.Account
}

// cookies are the values of a header's Cookie fields; at is the position of the first one in the
// request.
type cookies struct {
	values []string
	at     int
}

// pseudoFields are the pseudo-header fields of a request, except for the method.
type pseudoFields struct{ scheme, authority, path, protocol string }

// seenFields are the fields that a request may have once.
type seenFields uint16

const (
	seenMethod seenFields = 1 << iota
	seenScheme
	seenAuthority
	seenPath
	seenProtocol
	seenRegular // one that is none of the pseudo fields, which have to come first
	seenHost
	seenLength
	seenTE
)

// add records a field, and reports whether it is the first of its kind.
func (s *seenFields) add(f seenFields) (first bool) {
	first = *s&f == 0
	*s |= f
	return first
}

// headerLimit returns the maximum size of a header list: MaxHeaderBytes as net/http counts them,
// plus the overhead per field in HTTP/2.
func (h *conn) headerLimit() int { return h.Options.MaxHeaderBytes + 320 }

// readHeaders begins a request, or ends one whose body has trailers.
func (h *conn) readHeaders(f *http2.HeadersFrame) (*stream, error) {
	id := f.StreamID
	if id%2 == 0 {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h.head = headers{open: true, id: id, ends: f.StreamEnded()}
	if id <= h.maxID {
		if err := h.beginTrailers(id); err != nil {
			return nil, err
		}
	} else {
		by := (id - h.maxID) / 2
		if h.maxID == 0 {
			by = 64
		}
		h.opened, h.maxID = h.opened<<by|1, id
		h.head.st = newStream(h, id)
	}
	if f.HasPriority() && f.Priority.StreamDep == id {
		h.head.malformed = true
	}
	return h.readBlock(f.HeaderBlockFragment(), f.HeadersEnded())
}

// beginTrailers finds the stream that a second header belongs to.
func (h *conn) beginTrailers(id uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.streams[id]
	switch back := (h.maxID - id) / 2; {
	case st != nil && !st.gotEnd:
		h.head.st, h.head.trailers = st, true
		h.head.malformed = !h.head.ends
		return nil
	case st == nil && h.resets.find(id) != nil:
		h.head.trailers = true // the client did not know yet
		return nil
	case back < 64 && h.opened&(1<<back) != 0:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	return http2.ConnectionError(http2.ErrCodeProtocol)
}

func (h *conn) readContinuation(f *http2.ContinuationFrame) (*stream, error) {
	if h.head.block.frames++; h.head.block.frames > headerFrames {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if err := h.charge(frameCost); err != nil {
		return nil, err
	}
	return h.readBlock(f.HeaderBlockFragment(), f.HeadersEnded())
}

// readBlock adds a part of a header block, and decodes the block after the last part.
func (h *conn) readBlock(part []byte, last bool) (*stream, error) {
	b := &h.head.block
	// A block that is far too large is not even decoded.
	if len(b.parts)+len(part) > 2*h.headerLimit() {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if !last || len(b.parts) > 0 {
		b.parts = append(b.parts, part...)
		h.holdBlock(cap(b.parts))
		if h.Buffers.OverShare(b.account, 0) {
			return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		part = b.parts
	}
	if !last {
		return nil, nil
	}
	h.decoder.SetEmitEnabled(true)
	_, err := h.decoder.Write(part)
	if err == nil {
		err = h.decoder.Close()
	}
	switch {
	case errors.Is(err, hpack.ErrStringLength):
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	case err != nil:
		return nil, http2.ConnectionError(http2.ErrCodeCompression)
	}
	h.holdBlock(0)
	done := h.head
	h.head = headers{}
	return h.beginRequest(&done)
}

// emit handles a decoded field.
func (h *conn) emit(f hpack.HeaderField) {
	head := &h.head
	if head.size += int(f.Size()); head.size > h.headerLimit() {
		head.tooLarge = true
		h.decoder.SetEmitEnabled(false)
		return
	}
	if head.malformed {
		return
	}
	switch pseudo := strings.HasPrefix(f.Name, ":"); {
	case !httpguts.ValidHeaderFieldValue(f.Value):
		head.malformed = true
	case pseudo:
		head.malformed = head.seen&seenRegular != 0 || head.trailers || trimBlanks(f.Value) != f.Value || !head.addPseudo(f.Name, f.Value)
	default:
		head.seen |= seenRegular
		head.malformed = !httpguts.ValidHeaderFieldName(f.Name) || strings.ToLower(f.Name) != f.Name ||
			!head.trailers && !head.addField(f.Name, trimBlanks(f.Value))
	}
}

// addPseudo handles a pseudo-header field. Each may occur once.
func (head *headers) addPseudo(name, value string) bool {
	var p *string
	var field seenFields
	switch name {
	case ":method":
		p, field = &head.st.req.Method, seenMethod
	case ":scheme":
		p, field = &head.pseudo.scheme, seenScheme
	case ":authority":
		p, field = &head.pseudo.authority, seenAuthority
	case ":path":
		p, field = &head.pseudo.path, seenPath
	case ":protocol":
		p, field = &head.pseudo.protocol, seenProtocol
	default:
		return false
	}
	if !head.seen.add(field) || value == "" && field != seenAuthority {
		return false
	}
	*p = value
	return true
}

// trimBlanks removes white space around a value, as over HTTP/1.1. In HTTP/2 it makes a request
// malformed (RFC 9113, 8.2.1). But Go's client sends it and retries forever if it is rejected, and
// kube-apiserver accepts it.
func trimBlanks(value string) string { return strings.Trim(value, " \t") }

// addField adds a field, unless it is a connection-specific field, which HTTP/2 does not allow.
func (head *headers) addField(name, value string) bool {
	r := &head.st.req
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		if !head.seen.add(seenTE) || value != "trailers" && value != "" {
			return false
		}
	case "host":
		if !head.seen.add(seenHost) || head.pseudo.authority != "" && value != head.pseudo.authority {
			return false
		}
		head.pseudo.authority = value
		return true
	case "content-length":
		if !head.seen.add(seenLength) && value != head.length {
			return false
		}
		head.length = value
		return true
	case "expect":
		head.st.expects = edge.HasToken(value, "100-continue")
		return true
	case "trailer":
		return true
	case "cookie":
		// Browsers send each cookie as a separate field, for better compression (RFC 9113, 8.2.3).
		if head.cookies.values = append(head.cookies.values, value); len(head.cookies.values) > 1 {
			return true
		}
		head.cookies.at = len(r.Header)
	}
	r.Header = append(r.Header, api.HeaderField{Name: canonicalName(name), Value: value})
	return true
}

// canonicalName returns textproto's canonical name, without an allocation for the most common
// names.
func canonicalName(name string) string {
	if name == "authorization" {
		return "Authorization"
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// beginRequest creates a request from a complete header.
func (h *conn) beginRequest(head *headers) (*stream, error) {
	st := head.st
	h.mu.Lock()
	ignored := h.goAway.state == goAwayFinal && head.id > h.goAway.lastID
	h.mu.Unlock()
	switch {
	case ignored, st == nil: // the client was told that nobody serves this one
		return nil, h.charge(resetCost)
	case head.trailers && (head.malformed || st.tunnel): // a tunnel has no trailers
		return nil, h.reject(head.id, http2.ErrCodeProtocol)
	case head.trailers:
		return nil, h.gotData(st, 0, true)
	}
	if !head.malformed && !head.tooLarge {
		head.malformed = st.complete(head) != nil
	}
	if head.malformed {
		return nil, h.reject(head.id, http2.ErrCodeProtocol)
	}
	if head.tooLarge {
		st.rejected = 431
		st.isHead = st.req.Method == "HEAD"
		if !head.ends {
			st.body = newBody(st, -1)
		}
	}
	st.headerSize = head.size
	if code, ok := h.open(st); !ok {
		return nil, h.reject(head.id, code)
	}
	if head.ends {
		h.mu.Lock()
		h.gotEndLocked(st)
		h.mu.Unlock()
	}
	return st, nil
}

var errBadLength = errors.New("the content length is not that of the body")

// complete sets the parts of the request that its header determines.
func (st *stream) complete(head *headers) error {
	r, pseudo := &st.req, &head.pseudo
	st.h.Describe(r)
	r.Proto, r.Attributor = "HTTP/2.0", st
	if len(head.cookies.values) > 1 {
		r.Header[head.cookies.at].Value = strings.Join(head.cookies.values, "; ")
	}
	r.Host = pseudo.authority
	if strings.IndexByte(r.Host, '@') >= 0 || r.Host != "" && !httpguts.ValidHostHeader(r.Host) {
		return edge.ErrBadRequest
	}
	target := pseudo.path
	switch {
	case pseudo.protocol != "" && (r.Method != "CONNECT" || r.Host == ""):
		return edge.ErrBadRequest
	case r.Method == "CONNECT" && pseudo.protocol == "":
		if pseudo.path != "" || pseudo.scheme != "" || r.Host == "" {
			return edge.ErrBadRequest
		}
		target = r.Host
	case !httpguts.ValidHeaderFieldName(r.Method), pseudo.scheme != "http" && pseudo.scheme != "https":
		return edge.ErrBadRequest
	case target != "*" && (!strings.HasPrefix(target, "/") || !validTarget(target)):
		return edge.ErrBadRequest
	}
	if err := edge.SetTarget(r, target); err != nil {
		return err
	}
	if pseudo.protocol != "" {
		st.completeTunnel(pseudo.protocol)
	}
	st.isHead = r.Method == "HEAD"
	return st.completeBody(head)
}

// completeTunnel turns an extended CONNECT (RFC 8441) into the equivalent HTTP/1.1 upgrade request,
// so that handlers need not distinguish them.
func (st *stream) completeTunnel(protocol string) {
	st.tunnel = true
	st.req.Method = "GET"
	if !strings.EqualFold(protocol, "websocket") {
		st.rejected = 501
		return
	}
	st.req.Upgrade = "websocket"
	st.req.Header = append(st.req.Header, api.HeaderField{Name: "Connection", Value: "Upgrade"}, api.HeaderField{Name: "Upgrade", Value: "websocket"})
}

// completeBody sets the length of the body, if there is one. Data on a tunnel forms a body that is
// not the body of the request.
func (st *stream) completeBody(head *headers) error {
	length := int64(-1)
	if head.seen&seenLength != 0 {
		n, err := strconv.ParseUint(head.length, 10, 63)
		if err != nil || st.tunnel || head.ends && n > 0 {
			return errBadLength
		}
		length = int64(n) //nolint:gosec // of 63 bits
	}
	if head.ends && !st.tunnel {
		return nil
	}
	st.body = newBody(st, length)
	switch {
	case head.ends:
		st.body.end(io.EOF)
	case length != 0 && !st.tunnel:
		st.req.Body, st.req.ContentLength = st.body, length
	}
	return nil
}

// validTarget rejects blanks, control characters and fragments, which no request target may have.
func validTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == '#' || s[i] == 0x7f {
			return false
		}
	}
	return true
}
