package edge

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

// dateCache is the Date header's value, made once a second.
type dateCache struct{ p atomic.Pointer[dateText] }

type dateText struct {
	second int64
	text   []byte
}

func (d *dateCache) append(dst []byte) []byte {
	now := time.Now()
	t := d.p.Load()
	if t == nil || t.second != now.Unix() {
		t = &dateText{second: now.Unix(), text: now.UTC().AppendFormat(nil, http.TimeFormat)}
		d.p.Store(t)
	}
	return append(dst, t.text...)
}

// ownHeader names the lines that the transport writes itself. A response to HEAD
// may tell the length of the body that GET would have.
func ownHeader(name string, head bool) bool {
	switch len(name) {
	case len("Connection"), len("Content-Length"), len("Transfer-Encoding"):
		return strings.EqualFold(name, "Connection") ||
			strings.EqualFold(name, "Content-Length") && !head ||
			strings.EqualFold(name, "Keep-Alive") ||
			strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// wantsClose says whether a handler asks for the connection to be closed.
func wantsClose(header api.Header) bool {
	for i := range header {
		if strings.EqualFold(header[i].Name, "Connection") && hasToken(header[i].Value, "close") {
			return true
		}
	}
	return false
}

// hasToken looks for a token in a comma-separated list.
func hasToken(list, token string) bool {
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if strings.EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// appendValue writes a value so that it cannot end its line.
func appendValue(dst []byte, value string) []byte {
	if strings.IndexByte(value, '\n') < 0 && strings.IndexByte(value, '\r') < 0 {
		return append(dst, value...)
	}
	for i := range len(value) {
		b := value[i]
		if b == '\n' || b == '\r' {
			b = ' '
		}
		dst = append(dst, b)
	}
	return dst
}

// validName says whether a name is a token (RFC 9110, 5.6.2).
func validName(name string) bool {
	for i := range len(name) {
		b := name[i]
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", b) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// bodyAllowed says whether a response with that status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != 204 && status != 304
}
