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

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// headers is a header that is being read: a HEADERS frame and the CONTINUATIONs that
// follow it.
type headers struct {
	open bool    // until its last frame was read
	st   *stream // nil if it is nobody's
	id   uint32
	ends bool // the stream ends with it
	// trailers says that it comes behind a body. It is decoded, for the sake of the
	// table, and dropped.
	trailers bool
	// large says that the framer has a buffer for large frames since.
	large  bool
	frames int
	// block are the encoded parts, if there are several: the decoder would keep the room
	// that it takes for what a part breaks off.
	block []byte
	// held is what the block counts for among all buffers, account for whom.
	held    int
	account *edge.Account
	size    int // of the decoded list, as RFC 9113, 6.5.2 counts it
	// malformed is what the request is not answered for, tooLarge that it is with 431.
	malformed, tooLarge bool
	regular             bool // pseudo fields are over
	seen                uint8

	scheme, authority, path, protocol string
	hosts, lengths, tes               int
	length                            string
	cookies                           []string
	cookieAt                          int // where the first is in the request
}

// headerLimit is the most that a header list may be: MaxHeaderBytes, as net/http counts
// them, with what a line is more in HTTP/2.
func (h *conn) headerLimit() int { return h.c.Options.MaxHeaderBytes + 320 }

// readHeaders begins a request, or ends one whose body has trailers.
func (h *conn) readHeaders(f *http2.HeadersFrame) (*stream, error) {
	id := f.StreamID
	if id%2 == 0 {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	large := h.head.large
	h.head = headers{open: true, id: id, ends: f.StreamEnded(), large: large}
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
		h.head.st = &stream{h: h, id: id}
		h.head.st.init()
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
	case st == nil && h.resetOfLocked(id) != nil:
		h.head.trailers = true // the client did not know yet
		return nil
	case back < 64 && h.opened&(1<<back) != 0:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	return http2.ConnectionError(http2.ErrCodeProtocol)
}

func (h *conn) readContinuation(f *http2.ContinuationFrame) (*stream, error) {
	if h.head.frames++; h.head.frames > headerFrames {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if err := h.charge(frameCost); err != nil {
		return nil, err
	}
	return h.readBlock(f.HeaderBlockFragment(), f.HeadersEnded())
}

// readBlock takes a part of a header, and decodes it with the last.
func (h *conn) readBlock(block []byte, last bool) (*stream, error) {
	head := &h.head
	// A block that is far too large is not even decoded.
	if len(head.block)+len(block) > 2*h.headerLimit() {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if !last || len(head.block) > 0 {
		head.block = append(head.block, block...)
		h.holdBlock(cap(head.block))
		if h.c.Buffers.OverShare(head.account, 0) {
			return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		block = head.block
	}
	if !last {
		return nil, nil
	}
	h.decoder.SetEmitEnabled(true)
	_, err := h.decoder.Write(block)
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
	done := *head
	h.head = headers{large: done.large, id: done.id}
	return h.beginRequest(&done)
}

// holdBlock counts n bytes as held for the header that is being read, instead of those
// before.
func (h *conn) holdBlock(n int) {
	head := &h.head
	if head.account == nil {
		head.account = h.c.Holder()
	}
	h.c.Buffers.Hold(head.account, int64(n-head.held))
	head.held = n
}

// beginRequest makes a request of a complete header.
func (h *conn) beginRequest(head *headers) (*stream, error) {
	st := head.st
	h.mu.Lock()
	ignored := h.going == goAwayFinal && head.id > h.lastID
	h.mu.Unlock()
	switch {
	case ignored: // it was told that nobody serves this one
		return nil, h.charge(resetCost)
	case st == nil:
		return nil, h.charge(resetCost)
	case head.trailers && (head.malformed || st.tunnel): // a tunnel has no trailers
		return nil, h.reject(head.id, http2.ErrCodeProtocol)
	case head.trailers:
		return nil, st.gotData(0, true)
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

// emit takes a field that was decoded.
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
	pseudo := strings.HasPrefix(f.Name, ":")
	switch {
	case !httpguts.ValidHeaderFieldValue(f.Value):
		head.malformed = true
	case pseudo:
		head.malformed = head.regular || head.trailers || trimBlanks(f.Value) != f.Value || !head.addPseudo(f.Name, f.Value)
	default:
		head.regular = true
		head.malformed = !validWireName(f.Name) || !head.trailers && !head.addField(f.Name, trimBlanks(f.Value))
	}
}

// The pseudo fields of a request.
const (
	seenMethod uint8 = 1 << iota
	seenScheme
	seenAuthority
	seenPath
	seenProtocol
)

// addPseudo takes a pseudo field, each of which comes once.
func (head *headers) addPseudo(name, value string) bool {
	var p *string
	var bit uint8
	switch name {
	case ":method":
		p, bit = &head.st.req.Method, seenMethod
	case ":scheme":
		p, bit = &head.scheme, seenScheme
	case ":authority":
		p, bit = &head.authority, seenAuthority
	case ":path":
		p, bit = &head.path, seenPath
	case ":protocol":
		p, bit = &head.protocol, seenProtocol
	default:
		return false
	}
	if head.seen&bit != 0 || value == "" && bit != seenAuthority {
		return false
	}
	head.seen |= bit
	*p = value
	return true
}

// trimBlanks takes away white space around a value, which over HTTP/1.1 is none of it. In
// HTTP/2 it makes a request malformed (RFC 9113, 8.2.1), but Go's client sends it, asks
// again and again when it is refused, and kube-apiserver takes it.
func trimBlanks(value string) string { return strings.Trim(value, " \t") }

// validWireName says whether a name is a token without capital letters.
func validWireName(name string) bool {
	for i := range len(name) {
		if b := name[i]; 'A' <= b && b <= 'Z' {
			return false
		}
	}
	return edge.ValidName(name)
}

// addField takes a field that is none of the connection's, which HTTP/2 has none of.
func (head *headers) addField(name, value string) bool {
	r := &head.st.req
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		if head.tes++; head.tes > 1 || value != "trailers" && value != "" {
			return false
		}
	case "host":
		head.hosts++
		if head.hosts > 1 || head.authority != "" && value != head.authority {
			return false
		}
		head.authority = value
		return true
	case "content-length":
		head.lengths++
		if head.lengths > 1 && value != head.length {
			return false
		}
		head.length = value
		return true
	case "expect":
		head.st.expects = httpguts.HeaderValuesContainsToken([]string{value}, "100-continue")
		return true
	case "trailer":
		return true
	case "cookie":
		// Browsers send each by itself, for the sake of the table (RFC 9113, 8.2.3).
		if head.cookies = append(head.cookies, value); len(head.cookies) > 1 {
			return true
		}
		head.cookieAt = len(r.Header)
	}
	r.Header = append(r.Header, api.HeaderField{Name: canonicalName(name), Value: value})
	return true
}

// canonicalName is textproto's, without an allocation for what Kubernetes' clients
// send.
func canonicalName(name string) string {
	switch name {
	case "accept":
		return "Accept"
	case "accept-encoding":
		return "Accept-Encoding"
	case "authorization":
		return "Authorization"
	case "content-type":
		return "Content-Type"
	case "cookie":
		return "Cookie"
	case "user-agent":
		return "User-Agent"
	case "kubectl-command":
		return "Kubectl-Command"
	case "kubectl-session":
		return "Kubectl-Session"
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

var errBadLength = errors.New("the content length is not that of the body")

// complete completes the request with what its header says.
func (st *stream) complete(head *headers) error {
	c, r := st.h.c, &st.req
	r.Proto, r.RemoteAddr, r.PeerCertificates, r.Listener, r.Attributor = "HTTP/2.0", c.Remote, c.Certs, c.Listener, st
	r.ServerName = c.Sni
	if len(head.cookies) > 1 {
		r.Header[head.cookieAt].Value = strings.Join(head.cookies, "; ")
	}
	r.Host = head.authority
	if strings.IndexByte(r.Host, '@') >= 0 || r.Host != "" && !httpguts.ValidHostHeader(r.Host) {
		return edge.ErrBadRequest
	}
	target := head.path
	switch {
	case head.protocol != "" && (r.Method != "CONNECT" || r.Host == ""):
		return edge.ErrBadRequest
	case r.Method == "CONNECT" && head.protocol == "":
		if head.path != "" || head.scheme != "" || r.Host == "" {
			return edge.ErrBadRequest
		}
		target = r.Host
	case r.Method == "", !edge.ValidName(r.Method), head.scheme != "http" && head.scheme != "https":
		return edge.ErrBadRequest
	case target != "*" && (target == "" || target[0] != '/' || !validTarget(target)):
		return edge.ErrBadRequest
	}
	if err := edge.SetTarget(r, target); err != nil {
		return err
	}
	if head.protocol != "" {
		st.completeTunnel(head.protocol)
	}
	st.isHead = r.Method == "HEAD"
	return st.completeBody(head)
}

// completeTunnel makes an extended CONNECT (RFC 8441) the request that it would be over
// HTTP/1.1, so that whoever decides about that decides about this.
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

// completeBody says how long the body is, if there is one.
func (st *stream) completeBody(head *headers) error {
	if st.tunnel {
		return st.ownTunnel(head)
	}
	length := int64(-1)
	if head.lengths > 0 {
		n, err := strconv.ParseUint(head.length, 10, 63)
		if err != nil {
			return errBadLength
		}
		length = int64(n) //nolint:gosec // of 63 bits
	}
	if head.ends {
		if length > 0 {
			return errBadLength
		}
		return nil
	}
	st.body = newBody(st, length)
	if length != 0 {
		st.req.Body, st.req.ContentLength = st.body, length
	}
	return nil
}

// ownTunnel makes what comes on a tunnel a body that is not the request's.
func (st *stream) ownTunnel(head *headers) error {
	if head.lengths > 0 {
		return errBadLength
	}
	st.body = newBody(st, -1)
	if head.ends {
		st.body.end(io.EOF)
	}
	return nil
}

// validTarget refuses blanks, control characters and fragments, which no target of a
// request has.
func validTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == '#' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// noDynamicTable is HPACK's instruction that makes the dynamic table one of 0 bytes.
// Headers are written without it: it would take a lock, memory for each connection, and
// more time than it saves, as most of what is answered is new each time.
const noDynamicTable = 0x20

// appendHeader encodes the header of a response: that of the handler in order, but for
// the lines that belong to the connection.
func appendHeader(c *edge.Conn, dst []byte, status int, header api.Header, length int64, head bool) []byte {
	dst = appendStatus(dst, status)
	date, sized := false, false
	for i := range header {
		name, value := header[i].Name, header[i].Value
		if !edge.ValidName(name) || edge.IsFraming(name, head) || strings.EqualFold(name, "Upgrade") || strings.EqualFold(name, "Proxy-Connection") {
			continue
		}
		date = date || strings.EqualFold(name, "Date")
		sized = sized || strings.EqualFold(name, "Content-Length")
		dst = appendName(dst, name)
		dst = appendInteger(dst, 0, 7, len(value))
		dst = edge.AppendValue(dst, value)
	}
	if !date {
		dst = appendName(dst, "Date")
		at := len(dst)
		dst = c.Date.Append(append(dst, 0))
		dst[at] = byte(len(dst) - at - 1) //nolint:gosec // 29
	}
	if length >= 0 && edge.BodyAllowed(status) && !sized {
		dst = appendName(dst, "Content-Length")
		at := len(dst)
		dst = strconv.AppendInt(append(dst, 0), length, 10)
		dst[at] = byte(len(dst) - at - 1) //nolint:gosec // at most 19
	}
	return dst
}

// appendStatus encodes :status, as one byte where the static table has it.
func appendStatus(dst []byte, status int) []byte {
	switch status {
	case 200:
		return append(dst, 0x88)
	case 204:
		return append(dst, 0x89)
	case 304:
		return append(dst, 0x8b)
	case 400:
		return append(dst, 0x8c)
	case 404:
		return append(dst, 0x8d)
	case 500:
		return append(dst, 0x8e)
	}
	return strconv.AppendInt(append(dst, 8, 3), int64(status), 10)
}

// appendName begins a literal field that is not to be indexed.
func appendName(dst []byte, name string) []byte {
	if i := staticName(name); i > 0 {
		return appendInteger(dst, 0, 4, i)
	}
	dst = appendInteger(append(dst, 0), 0, 7, len(name))
	for i := range len(name) {
		b := name[i]
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		dst = append(dst, b)
	}
	return dst
}

// appendInteger encodes an integer with a prefix of bits (RFC 7541, 5.1).
func appendInteger(dst []byte, first byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(dst, first|byte(n)) //nolint:gosec // below most
	}
	dst = append(dst, first|byte(most)) //nolint:gosec // below 256
	for n -= most; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80) //nolint:gosec // the low bits
	}
	return append(dst, byte(n)) //nolint:gosec // below 128
}

// staticName is where the static table of HPACK has a name that responses have, 0 when
// it does not (RFC 7541, appendix A).
func staticName(name string) int {
	switch name {
	case "Age":
		return 21
	case "Allow":
		return 22
	case "Cache-Control":
		return 24
	case "Content-Encoding":
		return 26
	case "Content-Length":
		return 28
	case "Content-Type":
		return 31
	case "Date":
		return 33
	case "Etag":
		return 34
	case "Last-Modified":
		return 44
	case "Location":
		return 46
	case "Retry-After":
		return 53
	case "Vary":
		return 59
	case "Www-Authenticate":
		return 61
	}
	return 0
}
