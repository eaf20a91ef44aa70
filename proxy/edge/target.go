package edge

import (
	"errors"
	"net/url"
	"strings"

	"github.com/kubeweir/kubeweir/api"
)

// InlineFields is how many header lines a request holds without an allocation of
// their own; client-go sends five to eight.
const InlineFields = 8

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
