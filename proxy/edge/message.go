package edge

import (
	"errors"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
)

// InlineFields is how many header lines a request holds without an allocation of
// their own; client-go sends five to eight.
const InlineFields = 8

// ErrBadRequest means that a request is malformed.
var ErrBadRequest = errors.New("malformed request")

// SetTarget sets path, query and, for a target in absolute form, the host, as
// net/url and net/http's server do.
func SetTarget(r *api.Request, target string) error {
	if !strings.HasPrefix(target, "/") && target != "*" {
		_, rest, found := strings.Cut(target, "://")
		if !found {
			// CONNECT names a host and no path.
			r.Host = target
			return nil
		}
		if _, err := url.ParseRequestURI(target); err != nil { // a port that is none, for instance
			return ErrBadRequest
		}
		host := rest
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			host, target = rest[:i], rest[i:]
		} else {
			target = ""
		}
		if i := strings.LastIndexByte(host, '@'); i >= 0 {
			host = host[i+1:]
		}
		if host != "" {
			r.Host = host
		}
	}
	r.RawPath, r.RawQuery, _ = strings.Cut(target, "?")
	r.Path = r.RawPath
	if strings.IndexByte(r.RawPath, '%') >= 0 {
		path, err := url.PathUnescape(r.RawPath)
		if err != nil {
			return ErrBadRequest
		}
		r.Path = path
	}
	return nil
}

// IsFraming reports whether the transport itself writes the header lines of that name. A response
// to HEAD may tell the length of the body that GET would have.
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

// WantsClose reports whether a handler asks for the connection to be closed.
func WantsClose(header api.Header) bool {
	for i := range header {
		if strings.EqualFold(header[i].Name, "Connection") && HasToken(header[i].Value, "close") {
			return true
		}
	}
	return false
}

// HasToken reports whether a comma-separated list has a token.
func HasToken(list, token string) bool {
	return httpguts.HeaderValuesContainsToken([]string{list}, token)
}

// AppendValue appends a value so that it cannot end its line.
func AppendValue(dst []byte, value string) []byte {
	at := len(dst)
	dst = append(dst, value...)
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		for i, b := range dst[at:] {
			if b == '\n' || b == '\r' {
				dst[at+i] = ' '
			}
		}
	}
	return dst
}

// BodyAllowed reports whether a response with that status may have a body.
func BodyAllowed(status int) bool {
	return status >= 200 && status != 204 && status != 304
}
