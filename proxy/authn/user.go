package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Digest identifies a user by everything that a decision can depend on. It is a SHA-256, because
// clients choose parts of what it covers.
type Digest [sha256.Size]byte

// info provides the methods of a User; their results must not be modified.
type info = user.DefaultInfo

// User is an immutable user.Info with its digest, so that looking up a decision does not hash the
// groups again. It is safe for concurrent use.
type User struct {
	info
	digest Digest
	// gateway marks the gateway's own identity, which needs no review: the cache was filled with
	// its permissions.
	gateway bool
	// undecided marks a user whose impersonation only the upstream can decide.
	undecided bool
}

var _ user.Info = (*User)(nil)

// NewUser copies a user. It returns a *User unchanged.
func NewUser(of user.Info) *User {
	if u, ok := of.(*User); ok {
		return u
	}
	u := &User{info: info{Name: of.GetName(), UID: of.GetUID(), Groups: slices.Clone(of.GetGroups())}}
	if extra := of.GetExtra(); len(extra) > 0 {
		u.Extra = make(map[string][]string, len(extra))
		for k, v := range extra {
			u.Extra[k] = slices.Clone(v)
		}
	}
	u.digest = digestOf(&u.info)
	return u
}

// authenticatedUser returns the user with the group system:authenticated, which the API server adds
// after authentication (k8s.io/apiserver/pkg/authentication/group).
func authenticatedUser(info user.DefaultInfo) *User {
	if info.Name != user.Anonymous &&
		!slices.Contains(info.Groups, user.AllAuthenticated) && !slices.Contains(info.Groups, user.AllUnauthenticated) {
		info.Groups = append(slices.Clip(info.Groups), user.AllAuthenticated)
	}
	return NewUser(&info)
}

// Digest returns the digest of the user.
func (u *User) Digest() Digest { return u.digest }

// IsGateway reports whether u is the gateway's own identity, which needs no review.
func (u *User) IsGateway() bool { return u.gateway }

// UpstreamDecides reports whether only the upstream can decide whether the client may impersonate
// u.
func (u *User) UpstreamDecides() bool { return u.undecided }

// samePrincipal reports whether both are the same user in the same groups. It ignores Extra, which
// may hold values that differ from one review of a token to the next.
func (u *User) samePrincipal(v *User) bool {
	if u.digest == v.digest {
		return true
	}
	if u.info.Name != v.info.Name || u.info.UID != v.info.UID {
		return false
	}
	a, b := slices.Sorted(slices.Values(u.info.Groups)), slices.Sorted(slices.Values(v.info.Groups))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// digestOf hashes all fields, each after its length, so that different users are hashed
// differently.
func digestOf(info *user.DefaultInfo) (d Digest) {
	h := sha256.New()
	writeString(h, info.Name)
	writeString(h, info.UID)
	writeStrings(h, info.Groups)
	writeLen(h, len(info.Extra))
	for _, k := range sortedKeys(info.Extra) {
		writeString(h, k)
		writeStrings(h, info.Extra[k])
	}
	h.Sum(d[:0])
	return d
}

func writeLen(h hash.Hash, n int) {
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) // a hash never fails
}

func writeString(h hash.Hash, s string) {
	writeLen(h, len(s))
	_, _ = io.WriteString(h, s)
}

func writeStrings(h hash.Hash, list []string) {
	writeLen(h, len(list))
	for _, s := range list {
		writeString(h, s)
	}
}

func sortedKeys(extra map[string][]string) []string {
	if len(extra) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(extra))
}
