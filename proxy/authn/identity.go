package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Identity is an authenticated client. It is immutable and safe for concurrent use.
type Identity struct {
	// User is the client, before impersonation.
	User *User
	// Source is how the client was authenticated.
	Source Source
	// Token is the client's own token if Source is BearerToken. Forwarded requests carry it.
	Token Token
	// Offline is true if the upstream is unavailable and an older review of the token was used.
	Offline bool
	// Reviews is the share of a TokenReview that this request caused: 1 if it shared the review
	// with no other request, 0 without a review.
	Reviews float64

	credential CredentialKey
	chain      certificates // for ClientCertificate
}

// Credential returns the key of the client's credential, zero for one that cannot be checked again.
func (id *Identity) Credential() CredentialKey { return id.credential }

// LogValue returns the user and the source.
func (id *Identity) LogValue() slog.Value {
	return slog.GroupValue(slog.String("user", id.User.GetName()), slog.String("source", id.Source.String()))
}

// Subject is whom a request acts as. It is immutable and safe for concurrent use.
type Subject struct {
	// Identity is the client.
	Identity *Identity
	// User is the user that the request is authorized as: Identity.User, or the user that it
	// impersonates.
	User *User
	// Impersonated is true if the client is allowed to impersonate User.
	Impersonated bool
	// UpstreamDecides is true if the client requested an impersonation and only the upstream can
	// decide whether it may, and which user it acts as. The request must be forwarded.
	UpstreamDecides bool
	// Offline is true if the upstream is unavailable, and older reviews tell who the client is or
	// whom it may impersonate.
	Offline bool
	// Reviews is how many reviews the impersonation caused; a review shared with other requests
	// counts in part.
	Reviews float64
	// Requested is the user in the impersonation headers, nil without them.
	Requested *user.DefaultInfo
}

// LeaveToUpstream sets UpstreamDecides and returns s.
func (s *Subject) LeaveToUpstream() *Subject {
	u := *s.Identity.User
	u.gateway, u.undecided = false, true
	s.User, s.UpstreamDecides = &u, true
	return s
}

// RequestedUser returns the user that the client asks to impersonate, allowed or not, or nil. It
// puts a node without groups into the group of nodes, because the upstream may do so.
func (s *Subject) RequestedUser() *User {
	if s.Requested == nil {
		return nil
	}
	requested := *s.Requested
	if IsBareNode(&requested) {
		requested.Groups = []string{user.NodesGroup}
	}
	return ImpersonatedUser(&requested)
}

// Actors returns who sends a request and as whom, even if the upstream decides about that.
func (s *Subject) Actors() []user.Info {
	all := []user.Info{s.User, s.Identity.User}
	if s.UpstreamDecides {
		all = append(all, s.RequestedUser())
	}
	return all
}

// ImpersonatedUser completes the groups as kube-apiserver does: those of a service account unless
// some are requested, and system:authenticated or system:unauthenticated.
func ImpersonatedUser(requested *user.DefaultInfo) *User {
	u := *requested
	if namespace, _, err := serviceaccount.SplitUsername(u.Name); err == nil && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	if u.Name == user.Anonymous && !slices.Contains(u.Groups, user.AllUnauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), user.AllUnauthenticated)
	}
	return authenticatedUser(u)
}

// NodeUserPrefix begins the names of nodes.
const NodeUserPrefix = "system:node:"

// IsBareNode reports whether u is a node of which only the name is given.
func IsBareNode(u *user.DefaultInfo) bool {
	return strings.HasPrefix(u.Name, NodeUserPrefix) && onlyName(u)
}

func onlyName(u *user.DefaultInfo) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

// Source is how an Identity was established.
type Source uint8

// The sources, in the order in which they are tried.
const (
	// Gateway is the gateway's own identity, which the sidecar listener and the gateway's token
	// grant.
	Gateway Source = iota + 1
	// FrontProxy is an identity that an authenticating proxy vouches for.
	FrontProxy
	// ClientCertificate is the subject of a verified client certificate.
	ClientCertificate
	// BearerToken is the user of a token, by the upstream's review.
	BearerToken
	// Anonymous is a request without credentials.
	Anonymous
)

// String returns the source for logs and metrics.
func (s Source) String() string {
	names := [...]string{"unknown", "gateway", "front-proxy", "client-certificate", "bearer-token", "anonymous"}
	if int(s) < len(names) {
		return names[s]
	}
	return names[0]
}

// Token is a bearer token. It is hidden if it is printed, logged or marshaled; string(t) is the
// token.
type Token string

// String hides the token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return "[redacted]"
}

// GoString hides the token from %#v.
func (t Token) GoString() string { return `"` + t.String() + `"` }

// LogValue hides the token from slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides the token from encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// CredentialKey stands for a credential without revealing it: a keyed SHA-256 of a token, or the
// fingerprint of a certificate. The zero value is no credential.
type CredentialKey [sha256.Size]byte

// certificates are what a TLS client presented: its own certificate and then those that lead to a
// CA.
type certificates []*x509.Certificate
