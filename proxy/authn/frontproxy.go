package authn

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

// RequestHeaderOptions describe authenticating proxies, as the --requestheader-* flags of
// kube-apiserver do. Header names are compared without case.
type RequestHeaderOptions struct {
	// CAFile holds the CAs of the proxies' client certificates, in PEM; "" trusts no proxy.
	CAFile string
	// AllowedNames are the common names of the proxies' certificates; none allows all certificates
	// of the CA.
	AllowedNames []string
	// UsernameHeaders (default X-Remote-User) and UIDHeaders (default X-Remote-Uid): the first one
	// with a value counts.
	UsernameHeaders, UIDHeaders []string
	// GroupHeaders (default X-Remote-Group): all values of all of them count.
	GroupHeaders []string
	// ExtraHeaderPrefixes (default X-Remote-Extra-) precede percent-encoded keys.
	ExtraHeaderPrefixes []string
	// NoDefaults leaves lists of headers empty, as kube-apiserver does.
	NoDefaults bool
}

func (o *RequestHeaderOptions) setDefaults() {
	for list, name := range map[*[]string]string{
		&o.UsernameHeaders: "X-Remote-User", &o.UIDHeaders: "X-Remote-Uid",
		&o.GroupHeaders: "X-Remote-Group", &o.ExtraHeaderPrefixes: "X-Remote-Extra-",
	} {
		if len(*list) == 0 && !o.NoDefaults {
			*list = []string{name}
		}
	}
}

// frontProxy trusts the headers of an authenticating proxy
// (k8s.io/apiserver/pkg/authentication/request/headerrequest).
type frontProxy struct {
	opts     RequestHeaderOptions
	verifier *verifier
}

// verify checks that the peer is a trusted proxy.
func (f *frontProxy) verify(presented certificates) error {
	noIdentity := func(_, _ certificates) (*Identity, error) { return nil, nil } // the headers have it
	if _, err := f.verifier.verify(presented, noIdentity); err != nil {
		return err
	}
	name := presented[0].Subject.CommonName
	if len(f.opts.AllowedNames) > 0 && !slices.Contains(f.opts.AllowedNames, name) {
		return fmt.Errorf("certificate with the common name %q is not in the allowed list", name)
	}
	return nil
}

// user returns the user in the headers, or nil.
func (f *frontProxy) user(h api.Header) *User {
	info := user.DefaultInfo{Name: firstValue(h, f.opts.UsernameHeaders)}
	if info.Name == "" {
		return nil
	}
	info.UID = firstValue(h, f.opts.UIDHeaders)
	for _, name := range f.opts.GroupHeaders {
		info.Groups = append(info.Groups, slices.DeleteFunc(h.Values(name), func(group string) bool { return group == "" })...)
	}
	info.Extra = extraValues(h, f.opts.ExtraHeaderPrefixes...)
	return authenticatedUser(info)
}

func firstValue(h api.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// extraValues collects the headers that begin with one of prefixes, by the rest of their names in
// lower case, percent-decoded. A rest that is not validly encoded is taken unchanged.
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

// credentialHeaders are the headers that carry credentials. Impersonate-* is not among them: it is
// what a client asks for, not what it has.
type credentialHeaders struct{ names, prefixes []string }

// newCredentialHeaders returns the headers of opts and those that kube-apiserver trusts by
// convention, configured or not.
func newCredentialHeaders(opts RequestHeaderOptions) credentialHeaders {
	return credentialHeaders{
		names: slices.Concat([]string{"Authorization", "X-Remote-User", "X-Remote-Uid", "X-Remote-Group"},
			opts.UsernameHeaders, opts.UIDHeaders, opts.GroupHeaders),
		prefixes: append([]string{"X-Remote-Extra-"}, opts.ExtraHeaderPrefixes...),
	}
}

// remove removes the credentials from h.
func (c *credentialHeaders) remove(h *api.Header) {
	*h = slices.DeleteFunc(*h, func(f api.HeaderField) bool {
		return slices.ContainsFunc(c.names, func(name string) bool { return strings.EqualFold(name, f.Name) }) ||
			slices.ContainsFunc(c.prefixes, func(prefix string) bool { _, ok := cutPrefixFold(f.Name, prefix); return ok })
	})
}
