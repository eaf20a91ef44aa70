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

func (d *dateCache) Append(dst []byte) []byte {
	now := time.Now()
	t := d.p.Load()
	if t == nil || t.second != now.Unix() {
		t = &dateText{second: now.Unix(), text: now.UTC().AppendFormat(nil, http.TimeFormat)}
		d.p.Store(t)
	}
	return append(dst, t.text...)
}

// IsFraming names the lines that the transport writes itself. A response to HEAD
// may tell the length of the body that GET would have.
func IsFraming(name string, head bool) bool {
	switch len(name) {
	case len("Connection"), len("Content-Length"), len("Transfer-Encoding"):
		return strings.EqualFold(name, "Connection") ||
			strings.EqualFold(name, "Content-Length") && !head ||
			strings.EqualFold(name, "Keep-Alive") ||
			strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// WantsClose says whether a handler asks for the connection to be closed.
func WantsClose(header api.Header) bool {
	for i := range header {
		if strings.EqualFold(header[i].Name, "Connection") && HasToken(header[i].Value, "close") {
			return true
		}
	}
	return false
}

// HasToken looks for a token in a comma-separated list.
func HasToken(list, token string) bool {
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if strings.EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// AppendValue writes a value so that it cannot end its line.
func AppendValue(dst []byte, value string) []byte {
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

// ValidName says whether a name is a token (RFC 9110, 5.6.2).
func ValidName(name string) bool {
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

// BodyAllowed says whether a response with that status may have a body.
func BodyAllowed(status int) bool {
	return status >= 200 && status != 204 && status != 304
}
