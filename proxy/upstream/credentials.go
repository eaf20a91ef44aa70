package upstream

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Credentials say as whom a request is forwarded. The zero value is the safest:
// the client's own token, or nobody.
type Credentials struct {
	As As
	// User, UID, Groups and Extra are who AsUser acts as. The keys of Extra are
	// not escaped.
	User   string
	UID    string
	Groups []string
	Extra  map[string][]string
	// KeepImpersonation passes on the Impersonate-* headers of the request, which
	// are stripped otherwise. With AsClient the upstream authorizes them, against
	// the client's own token. With AsGateway the caller vouches for them: they
	// must not be the client's own. AsUser ignores it.
	KeepImpersonation bool
}

// As tells apart whose credentials a forwarded request carries.
type As uint8

const (
	// AsClient sends the client's own bearer token, or none, on a connection
	// without the gateway's credentials.
	AsClient As = iota
	// AsUser impersonates a user with the gateway's credentials: for clients
	// known by certificate or front proxy.
	AsUser
	// AsGateway sends the gateway's own identity: for the sidecar.
	AsGateway
)

func (c *Credentials) purpose() purpose {
	switch c.As {
	case AsUser:
		return forIdentity
	case AsGateway:
		return forOwn
	}
	return forClient
}

const (
	impersonatePrefix = "Impersonate-"
	remotePrefix      = "X-Remote-"
	extraPrefix       = "Impersonate-Extra-"
)

// impersonate sets the headers that make the upstream take the request for the
// user's. It refuses what would arrive as another user: values that a header
// cannot hold, and those that lose blanks at their ends.
func (c *Credentials) impersonate(h http.Header) error {
	if c.User == "" {
		return fmt.Errorf("a user without a name cannot be passed on")
	}
	h["Impersonate-User"] = []string{c.User}
	if c.UID != "" {
		h["Impersonate-Uid"] = []string{c.UID}
	}
	if len(c.Groups) > 0 {
		h["Impersonate-Group"] = slices.Clone(c.Groups)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Extra)) {
		if values := c.Extra[key]; len(values) > 0 {
			h[extraPrefix+escapeKey(key)] = slices.Clone(values)
		}
	}
	for name, values := range h {
		if !strings.HasPrefix(name, impersonatePrefix) {
			continue
		}
		for _, v := range values {
			if v != strings.Trim(v, " \t") || !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("user %q cannot be passed on: %q does not survive in a header", c.User, v)
			}
		}
	}
	return nil
}

// escapeKey percent-encodes what a header's name cannot hold or would change:
// kube-apiserver lowers its case and then decodes it.
func escapeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c != '%' && httpguts.IsTokenRune(rune(c)) && (c < 'A' || c > 'Z') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
