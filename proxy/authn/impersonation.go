package authn

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

// The headers of impersonation.
const (
	impersonateUser        = "Impersonate-User"
	impersonateUID         = "Impersonate-Uid"
	impersonateGroup       = "Impersonate-Group"
	impersonateExtraPrefix = "Impersonate-Extra-"
)

// NodeUserPrefix begins the names of nodes.
const NodeUserPrefix = "system:node:"

func isImpersonation(name string) bool {
	if _, ok := cutPrefixFold(name, "Impersonate-"); !ok {
		return false
	}
	_, extra := cutPrefixFold(name, impersonateExtraPrefix)
	return extra || strings.EqualFold(name, impersonateUser) ||
		strings.EqualFold(name, impersonateUID) || strings.EqualFold(name, impersonateGroup)
}

// Subject is who a request acts as. It is immutable and safe for concurrent use.
type Subject struct {
	// Identity is who sent the request.
	Identity *Identity
	// User is whom the request is authorized as: Identity.User, or the user that
	// it impersonates.
	User *User
	// Impersonated tells that User is not Identity.User, but whom the client is
	// allowed to impersonate.
	Impersonated bool
	// UpstreamDecides tells that the client asked to impersonate somebody and
	// that only the upstream can tell whether it may, and as whom it would then
	// be treated. Such a request must be forwarded; Authorize decides nothing for
	// its User.
	UpstreamDecides bool
	// Offline tells that the upstream could not be asked who the client is, or whom it may
	// impersonate.
	Offline bool
	// Asked is how many reviews it took to find out whom the client may impersonate; of one
	// that others shared, a part.
	Asked float64

	// Requested is the user that the headers name, nil without impersonation.
	Requested *user.DefaultInfo
}

// Wanted is whom the client asks to act as, allowed or not; nil if nobody. A node named
// without groups is in that of nodes, for it may be treated as such.
func (s *Subject) Wanted() *User {
	if s.Requested == nil {
		return nil
	}
	wanted := *s.Requested
	if IsBareNode(&wanted) {
		wanted.Groups = []string{user.NodesGroup}
	}
	return ImpersonatedUser(&wanted)
}

// LeaveToUpstream returns s with UpstreamDecides set.
func (s *Subject) LeaveToUpstream() *Subject {
	u := *s.Identity.User
	u.gateway, u.undecided = false, true
	s.User, s.UpstreamDecides = &u, true
	return s
}

func onlyName(u *user.DefaultInfo) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

// IsBareNode reports whether a node is to be impersonated of which only the name is told.
func IsBareNode(wanted *user.DefaultInfo) bool {
	return strings.HasPrefix(wanted.Name, NodeUserPrefix) && onlyName(wanted)
}

// TakeImpersonation returns whom the headers of h name, nil if nobody is to be impersonated, and
// takes the headers out (processImpersonationHeaders in
// k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func TakeImpersonation(h *api.Header) (*user.DefaultInfo, error) {
	wanted, err := impersonationOf(*h)
	if err == nil {
		*h = slices.DeleteFunc(*h, func(f api.HeaderField) bool { return isImpersonation(f.Name) })
	}
	return wanted, err
}

func impersonationOf(h api.Header) (*user.DefaultInfo, error) {
	wanted := &user.DefaultInfo{
		Name:   h.Get(impersonateUser),
		UID:    h.Get(impersonateUID),
		Groups: h.Values(impersonateGroup),
		Extra:  extraValues(h, impersonateExtraPrefix),
	}
	if wanted.Name != "" {
		return wanted, nil
	}
	if !onlyName(wanted) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", wanted))
	}
	return nil, nil
}

// ImpersonatedUser completes the groups as kube-apiserver does: those of a
// service account unless some are named, and system:authenticated or
// system:unauthenticated.
func ImpersonatedUser(wanted *user.DefaultInfo) *User {
	u := *wanted
	if namespace, _, err := serviceaccount.SplitUsername(u.Name); err == nil && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	switch {
	case u.Name == user.Anonymous:
		if !slices.Contains(u.Groups, user.AllUnauthenticated) {
			u.Groups = append(slices.Clip(u.Groups), user.AllUnauthenticated)
		}
	case !slices.Contains(u.Groups, user.AllUnauthenticated):
		u = withAuthenticated(u)
	}
	return NewUser(&u)
}
