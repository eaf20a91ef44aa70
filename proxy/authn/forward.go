package authn

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

// The headers of impersonation.
const (
	impersonateUser        = "Impersonate-User"
	impersonateUID         = "Impersonate-Uid"
	impersonateGroup       = "Impersonate-Group"
	impersonateExtraPrefix = "Impersonate-Extra-"
)

func isImpersonation(name string) bool {
	_, extra := cutPrefixFold(name, impersonateExtraPrefix)
	return extra || strings.EqualFold(name, impersonateUser) ||
		strings.EqualFold(name, impersonateUID) || strings.EqualFold(name, impersonateGroup)
}

// TakeImpersonation returns the user whom the Impersonate-* headers of h name, nil without any, and
// removes the headers (processImpersonationHeaders in
// k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func TakeImpersonation(h *api.Header) (*user.DefaultInfo, error) {
	requested := &user.DefaultInfo{
		Name:   h.Get(impersonateUser),
		UID:    h.Get(impersonateUID),
		Groups: h.Values(impersonateGroup),
		Extra:  extraValues(*h, impersonateExtraPrefix),
	}
	if requested.Name == "" && !onlyName(requested) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", requested))
	}
	*h = slices.DeleteFunc(*h, func(f api.HeaderField) bool { return isImpersonation(f.Name) })
	if requested.Name == "" {
		return nil, nil
	}
	return requested, nil
}

// GatewayCredentials reports whose credentials the connection to the upstream must carry for a
// forwarded request of s: the gateway's own (true), or none at all, because the client's token is in
// the header or the client is anonymous. The two must not be mixed: kube-apiserver prefers a client
// certificate to a token, and would attribute the request to the gateway.
func (s *Subject) GatewayCredentials() bool { return !s.asItself() }

// asItself reports whether the client can be forwarded with its own credentials: its token, or
// none.
func (s *Subject) asItself() bool {
	return s.Identity.Source == BearerToken || s.Identity.Source == Anonymous && !s.Impersonated
}

// SetUpstreamHeader sets the credentials of a forwarded request of s in h, from which all
// credentials were removed: the client's own token and the impersonation that it requested. For a
// client that was authenticated by other means, it sets the impersonation of User, for use with the
// gateway's credentials. For the gateway's own identity it sets only the requested impersonation,
// if any.
//
// It fails for a user whose name a header would change, for instance one with a trailing space.
func (s *Subject) SetUpstreamHeader(h *api.Header) error {
	if s.Identity.Source != Gateway && !s.asItself() {
		removeCredentials(h)
		return addImpersonation(h, &s.User.info)
	}
	return s.setRequested(h, s.Identity.Token)
}

// SetTrustedHeader is SetUpstreamHeader for an upstream that gets Identity.User in another way: it
// sets only the impersonation that the client requested.
func (s *Subject) SetTrustedHeader(h *api.Header) error { return s.setRequested(h, "") }

func (s *Subject) setRequested(h *api.Header, token Token) error {
	removeCredentials(h)
	if token != "" {
		h.Add("Authorization", "Bearer "+string(token))
	}
	if s.Requested == nil {
		return nil
	}
	return addImpersonation(h, s.Requested)
}

func removeCredentials(h *api.Header) {
	*h = slices.DeleteFunc(*h, func(f api.HeaderField) bool {
		return isImpersonation(f.Name) || strings.EqualFold(f.Name, "Authorization")
	})
}

func addImpersonation(h *api.Header, u *user.DefaultInfo) error {
	fields := api.Header{{Name: impersonateUser, Value: u.Name}}
	if u.UID != "" {
		fields.Add(impersonateUID, u.UID)
	}
	for _, group := range u.Groups {
		fields.Add(impersonateGroup, group)
	}
	for _, key := range sortedKeys(u.Extra) {
		for _, value := range u.Extra[key] {
			fields.Add(impersonateExtraPrefix+escapeExtraKey(key), value)
		}
	}
	for _, f := range fields {
		if !isPlain(f.Value) {
			return notServed(escapeHTML(fmt.Sprintf("user %q cannot be passed on: %q does not survive in a header", u.Name, f.Value)))
		}
	}
	*h = append(*h, fields...)
	return nil
}

// isPlain reports whether a header value is read as it was written: no control characters, which
// end or break a line, and no spaces around it, which are trimmed.
func isPlain(value string) bool {
	for i := range len(value) {
		if value[i] < 0x20 || value[i] == 0x7f {
			return false
		}
	}
	return strings.Trim(value, " ") == value
}

// escapeExtraKey percent-encodes characters that are not allowed in a header's name, and upper-case
// letters, because header names are case-insensitive.
func escapeExtraKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
