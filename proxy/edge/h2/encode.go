package h2

import (
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// noDynamicTable is HPACK's instruction to set the size of the dynamic table to 0. Headers are
// written without the table: it would need a lock and memory for each connection, and cost more
// time than it saves, because most header values differ from response to response.
const noDynamicTable = 0x20

// responseHead is the header of a response.
type responseHead struct {
	status int
	header api.Header
	length int64 // of the body, -1 if it is not known
}

// appendHeader encodes the header of a response; isHead means to a HEAD request. It keeps the
// handler's order and omits fields that belong to the connection or to the handshake of HTTP/1.1.
func appendHeader(c *edge.Conn, dst []byte, head responseHead, isHead bool) []byte {
	dst = appendStatus(dst, head.status)
	date, sized := false, false
	for i := range head.header {
		name, value := head.header[i].Name, head.header[i].Value
		if !httpguts.ValidHeaderFieldName(name) || edge.IsFraming(name, isHead) || isHandshake(name) {
			continue
		}
		date = date || strings.EqualFold(name, "Date")
		sized = sized || strings.EqualFold(name, "Content-Length")
		dst = appendField(dst, name, value)
	}
	if !date {
		dst = appendField(dst, "Date", c.Date())
	}
	if head.length >= 0 && edge.BodyAllowed(head.status) && !sized {
		dst = appendName(dst, "Content-Length")
		at := len(dst)
		dst = strconv.AppendInt(append(dst, 0), head.length, 10)
		dst[at] = byte(len(dst) - at - 1) //nolint:gosec // at most 19
	}
	return dst
}

// isHandshake reports whether the field belongs to the upgrade handshake of HTTP/1.1.
func isHandshake(name string) bool {
	return strings.EqualFold(name, "Upgrade") || strings.EqualFold(name, "Proxy-Connection") ||
		strings.EqualFold(name, "Sec-WebSocket-Accept")
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

// appendField encodes a literal field without indexing.
func appendField(dst []byte, name, value string) []byte {
	dst = appendInteger(appendName(dst, name), 7, len(value))
	return edge.AppendValue(dst, value)
}

// appendName begins a literal field without indexing.
func appendName(dst []byte, name string) []byte {
	if i, ok := staticNames[name]; ok {
		return appendInteger(dst, 4, i)
	}
	dst = appendInteger(append(dst, 0), 7, len(name))
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
func appendInteger(dst []byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(dst, byte(n)) //nolint:gosec // below most
	}
	dst = append(dst, byte(most)) //nolint:gosec // below 256
	for n -= most; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80) //nolint:gosec // the low bits
	}
	return append(dst, byte(n)) //nolint:gosec // below 128
}

// staticNames maps common names of response fields to their index in HPACK's static table (RFC
// 7541, appendix A).
var staticNames = map[string]int{ //nolint:gochecknoglobals // a constant
	"Age": 21, "Allow": 22, "Cache-Control": 24, "Content-Encoding": 26, "Content-Length": 28, "Content-Type": 31,
	"Date": 33, "Etag": 34, "Last-Modified": 44, "Location": 46, "Retry-After": 53, "Vary": 59, "Www-Authenticate": 61,
}
