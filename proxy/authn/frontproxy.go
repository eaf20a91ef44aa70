package authn

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

// RequestHeaderOptions describe authenticating proxies, as the --requestheader-*
// flags of kube-apiserver do. Header names compare without case.
type RequestHeaderOptions struct {
	// CAFile holds the CAs of the proxies' client certificates, in PEM; "" trusts
	// no proxy.
	CAFile string
	// AllowedNames are the common names of proxies' certificates; none allows
	// every certificate of the CA.
	AllowedNames []string
	// UsernameHeaders (default X-Remote-User) and UIDHeaders (default
	// X-Remote-Uid): the first with a value counts.
	UsernameHeaders, UIDHeaders []string
	// GroupHeaders (default X-Remote-Group): all values of all of them count.
	GroupHeaders []string
	// ExtraHeaderPrefixes (default X-Remote-Extra-) precede percent-encoded keys.
	ExtraHeaderPrefixes []string
}

func (o *RequestHeaderOptions) setDefaults() {
	if len(o.UsernameHeaders) == 0 {
		o.UsernameHeaders = []string{"X-Remote-User"}
	}
	if len(o.UIDHeaders) == 0 {
		o.UIDHeaders = []string{"X-Remote-Uid"}
	}
	if len(o.GroupHeaders) == 0 {
		o.GroupHeaders = []string{"X-Remote-Group"}
	}
	if len(o.ExtraHeaderPrefixes) == 0 {
		o.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	}
}

// frontProxy believes the headers of an authenticating proxy
// (k8s.io/apiserver/pkg/authentication/request/headerrequest).
type frontProxy struct {
	opts     RequestHeaderOptions
	verifier *verifier
}

// verify checks that the peer is a trusted proxy.
func (f *frontProxy) verify(presented certificates) error {
	if _, err := f.verifier.verify(presented, nobody); err != nil {
		return err
	}
	name := presented[0].Subject.CommonName
	if len(f.opts.AllowedNames) > 0 && !slices.Contains(f.opts.AllowedNames, name) {
		return fmt.Errorf("certificate with the common name %q is not in the allowed list", name)
	}
	return nil
}

// nobody is the identity behind a proxy's own certificate: its headers tell.
func nobody(_, _ certificates) (*Identity, error) { return nil, nil }

// user is whom the headers name, nil when they name nobody.
func (f *frontProxy) user(h api.Header) *User {
	info := user.DefaultInfo{Name: firstValue(h, f.opts.UsernameHeaders)}
	if info.Name == "" {
		return nil
	}
	info.UID = firstValue(h, f.opts.UIDHeaders)
	for _, name := range f.opts.GroupHeaders {
		for _, group := range h.Values(name) {
			if group != "" {
				info.Groups = append(info.Groups, group)
			}
		}
	}
	info.Extra = extraValues(h, f.opts.ExtraHeaderPrefixes...)
	info = withAuthenticated(info)
	return NewUser(&info)
}

func firstValue(h api.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// extraValues collects the headers that begin with one of prefixes, by the rest
// of their names in lower case, percent-decoded. A rest that is not validly
// encoded is taken as it is.
func extraValues(h api.Header, prefixes ...string) map[string][]string {
	var extra map[string][]string
	for _, prefix := range prefixes {
		for _, field := range h {
			encoded, ok := cutPrefixFold(field.Name, prefix)
			if !ok {
				continue
			}
			encoded = strings.ToLower(encoded)
			key, err := url.PathUnescape(encoded)
			if err != nil {
				key = encoded
			}
			if extra == nil {
				extra = make(map[string][]string)
			}
			extra[key] = append(extra[key], field.Value)
		}
	}
	return extra
}

func cutPrefixFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// stripper takes credentials out of headers.
type stripper struct {
	names    []string
	prefixes []string
}

// newStripper strips the headers of opts and, configured or not, those that
// kube-apiserver honours by convention.
func newStripper(opts RequestHeaderOptions) stripper {
	return stripper{
		names: slices.Concat([]string{"Authorization", "X-Remote-User", "X-Remote-Uid", "X-Remote-Group"},
			opts.UsernameHeaders, opts.UIDHeaders, opts.GroupHeaders),
		prefixes: append([]string{"X-Remote-Extra-"}, opts.ExtraHeaderPrefixes...),
	}
}

// strip removes the credentials from h. Impersonate-* is what a client asks for, not what
// it has.
func (s *stripper) strip(h *api.Header) {
	kept := (*h)[:0]
	for _, field := range *h {
		if s.isCredential(field.Name) {
			continue
		}
		kept = append(kept, field)
	}
	clear((*h)[len(kept):])
	*h = kept
}

func (s *stripper) isCredential(name string) bool {
	for _, n := range s.names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	for _, prefix := range s.prefixes {
		if _, ok := cutPrefixFold(name, prefix); ok {
			return true
		}
	}
	return false
}
