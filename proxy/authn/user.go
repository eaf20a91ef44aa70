package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Digest identifies a user by everything that a decision can depend on. It is a
// SHA-256, because clients choose parts of what it covers.
type Digest [sha256.Size]byte

// User is an immutable user.Info that knows its own digest, so that looking up a
// decision does not hash the groups again. It is safe for concurrent use.
type User struct {
	info   user.DefaultInfo
	digest Digest
	// gateway marks the gateway's own identity, which needs no review: what is
	// in the cache was read with it.
	gateway bool
	// undecided marks whom only the upstream can tell whether the client may act
	// as; nothing is decided for such a user here.
	undecided bool
}

var _ user.Info = (*User)(nil)

// Digest identifies the user by everything that a decision can depend on.
func (u *User) Digest() Digest { return u.digest }

// IsGateway reports whether it is the gateway's own identity, which needs no review.
func (u *User) IsGateway() bool { return u.gateway }

// UpstreamDecides reports whether only the upstream can tell whether the client may act as the
// user.
func (u *User) UpstreamDecides() bool { return u.undecided }

// NewUser copies info. An info that is a *User is returned as it is.
func NewUser(info user.Info) *User {
	if u, ok := info.(*User); ok {
		return u
	}
	u := &User{info: user.DefaultInfo{
		Name:   info.GetName(),
		UID:    info.GetUID(),
		Groups: slices.Clone(info.GetGroups()),
	}}
	if extra := info.GetExtra(); len(extra) > 0 {
		u.info.Extra = make(map[string][]string, len(extra))
		for k, v := range extra {
			u.info.Extra[k] = slices.Clone(v)
		}
	}
	u.digest = digestOf(&u.info)
	return u
}

// GetName implements user.Info.
func (u *User) GetName() string { return u.info.Name }

// GetUID implements user.Info.
func (u *User) GetUID() string { return u.info.UID }

// GetGroups implements user.Info. The result must not be modified.
func (u *User) GetGroups() []string { return u.info.Groups }

// GetExtra implements user.Info. The result must not be modified.
func (u *User) GetExtra() map[string][]string { return u.info.Extra }

// samePrincipal reports whether both are the same user in the same groups.
// Extra is left out: it may hold what changes from one review of a token to the
// next.
func (u *User) samePrincipal(v *User) bool {
	if u.digest == v.digest {
		return true
	}
	if u.info.Name != v.info.Name || u.info.UID != v.info.UID {
		return false
	}
	a, b := slices.Clone(u.info.Groups), slices.Clone(v.info.Groups)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// withAuthenticated appends system:authenticated as the API server does after
// authentication (k8s.io/apiserver/pkg/authentication/group).
func withAuthenticated(info user.DefaultInfo) user.DefaultInfo {
	if info.Name == user.Anonymous ||
		slices.Contains(info.Groups, user.AllAuthenticated) || slices.Contains(info.Groups, user.AllUnauthenticated) {
		return info
	}
	info.Groups = append(slices.Clip(info.Groups), user.AllAuthenticated)
	return info
}

// digestOf hashes all fields, each with its length in front, so that no two
// different users are written alike.
func digestOf(info *user.DefaultInfo) (d Digest) {
	h := sha256.New()
	writeString(h, info.Name)
	writeString(h, info.UID)
	writeStrings(h, info.Groups)
	writeLen(h, len(info.Extra))
	for _, k := range slices.Sorted(maps.Keys(info.Extra)) {
		writeString(h, k)
		writeStrings(h, info.Extra[k])
	}
	h.Sum(d[:0])
	return d
}

func writeLen(h hash.Hash, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func writeString(h hash.Hash, s string) {
	writeLen(h, len(s))
	_, _ = io.WriteString(h, s) // a hash never fails
}

func writeStrings(h hash.Hash, list []string) {
	writeLen(h, len(list))
	for _, s := range list {
		writeString(h, s)
	}
}

// Source says how an Identity was established.
type Source uint8

// The sources, in the order in which they are tried.
const (
	// Gateway is the gateway's own identity, which everyone has on the sidecar
	// listener, or with the gateway's token.
	Gateway Source = iota + 1
	// FrontProxy is an identity that an authenticating proxy vouches for.
	FrontProxy
	// ClientCertificate is the subject of a verified client certificate.
	ClientCertificate
	// BearerToken is the user that the upstream says a token belongs to.
	BearerToken
	// Anonymous is a request without credentials.
	Anonymous

	sources = int(Anonymous) + 1
)

// String names the source for logs and metrics.
func (s Source) String() string {
	switch s {
	case Gateway:
		return "gateway"
	case FrontProxy:
		return "front-proxy"
	case ClientCertificate:
		return "client-certificate"
	case BearerToken:
		return "bearer-token"
	case Anonymous:
		return "anonymous"
	}
	return "unknown"
}

// Token is a bearer token. Printed, logged or marshalled it shows nothing of
// itself; string(t) is the token.
type Token string

const redacted = "[redacted]"

// String hides the token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return redacted
}

// GoString hides the token from %#v.
func (t Token) GoString() string { return `"` + t.String() + `"` }

// LogValue hides the token from slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides the token from encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Identity is an authenticated client. It is immutable and safe for concurrent
// use.
type Identity struct {
	// User is who the client is, before impersonation.
	User *User
	// Source says how that is known.
	Source Source
	// Token is the client's own token when Source is BearerToken, to be passed
	// on with forwarded requests.
	Token Token
	// Offline tells that the upstream could not be asked, and this is what it said of the
	// token last.
	Offline bool
	// Asked is what part of a TokenReview was made for this request: 1 if nobody shared it, 0
	// if the answer was remembered, or there was nothing to ask.
	Asked float64

	credential CredentialKey
	chain      certificates // for ClientCertificate
}

// Credential stands for what the client came with; zero for none that can be checked again.
func (id *Identity) Credential() CredentialKey { return id.credential }

// LogValue names the user and the source.
func (id *Identity) LogValue() slog.Value {
	return slog.GroupValue(slog.String("user", id.User.GetName()), slog.String("source", id.Source.String()))
}
