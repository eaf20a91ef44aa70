package authn

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

// GatewayCredentials tells whose credentials the connection to the upstream must
// carry for a forwarded request of s: the gateway's own (true), or none at all,
// because the client's token is in the header or the client is nobody. The two must not be mixed:
// kube-apiserver prefers a client certificate to a token, and would take the
// request for the gateway's.
func (s *Subject) GatewayCredentials() bool { return !s.asItself() }

// asItself reports whether the client can be forwarded with what it came with:
// its token, or nothing.
func (s *Subject) asItself() bool {
	return s.Identity.Source == BearerToken || s.Identity.Source == Anonymous && !s.Impersonated
}

// SetUpstreamHeader sets in h, from which Authenticate and Impersonate took all
// credentials, what a forwarded request of s must carry: the client's own token
// and impersonation as it asked for them, or, for a client known by other means, the
// impersonation of User with the gateway's credentials. For the gateway's own
// identity it sets the impersonation that was asked for, if any.
//
// It fails for a user that cannot be named in a header without becoming another
// one, for instance by a name with a space at its end.
func (s *Subject) SetUpstreamHeader(h *api.Header) error {
	removeCredentials(h)
	switch {
	case s.Identity.Source == Gateway:
		return s.addWanted(h)
	case !s.asItself():
		return addImpersonation(h, &s.User.info)
	}
	if s.Identity.Token != "" {
		h.Add("Authorization", "Bearer "+string(s.Identity.Token))
	}
	return s.addWanted(h)
}

// SetTrustedHeader is SetUpstreamHeader for an upstream that takes Identity.User
// from elsewhere: it sets the impersonation that the client asked for.
func (s *Subject) SetTrustedHeader(h *api.Header) error {
	removeCredentials(h)
	return s.addWanted(h)
}

func removeCredentials(h *api.Header) {
	*h = slices.DeleteFunc(*h, func(f api.HeaderField) bool {
		return isImpersonation(f.Name) || strings.EqualFold(f.Name, "Authorization")
	})
}

func (s *Subject) addWanted(h *api.Header) error {
	if s.Requested == nil {
		return nil
	}
	return addImpersonation(h, s.Requested)
}

func addImpersonation(h *api.Header, u *user.DefaultInfo) error {
	add := func(name, value string) error {
		if !plainHeaderValue(value) {
			return notServed(EscapeHTML(fmt.Sprintf("user %q cannot be passed on: %q does not survive in a header", u.Name, value)))
		}
		h.Add(name, value)
		return nil
	}
	if err := add(impersonateUser, u.Name); err != nil {
		return err
	}
	if u.UID != "" {
		if err := add(impersonateUID, u.UID); err != nil {
			return err
		}
	}
	for _, group := range u.Groups {
		if err := add(impersonateGroup, group); err != nil {
			return err
		}
	}
	for _, key := range SortedKeys(u.Extra) {
		for _, value := range u.Extra[key] {
			if err := add(impersonateExtraPrefix+escapeExtraKey(key), value); err != nil {
				return err
			}
		}
	}
	return nil
}

// SortedKeys returns the keys of extra in order.
func SortedKeys(extra map[string][]string) []string {
	if len(extra) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(extra))
}

// plainHeaderValue reports whether a value is read from a header as it was
// written: no control characters, which end or break a line, and no blanks
// around it, which are trimmed.
func plainHeaderValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// escapeExtraKey percent-encodes what may not stand in a header's name, and what
// would not come out of it unchanged: names are compared in lower case.
func escapeExtraKey(key string) string {
	const upperHex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}
