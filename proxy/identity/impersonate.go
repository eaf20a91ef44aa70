package identity

import (
	"context"
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
	nodeUserPrefix         = "system:node:"
)

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

	wanted *user.DefaultInfo // as the headers say it, nil without impersonation
	needed []Attributes      // what the impersonation was allowed by
}

// Impersonate returns whom a request of id acts as, and takes the Impersonate-*
// headers out of r's header.
//
// The rules are those that kube-apiserver has always had (verb impersonate on
// users, groups, serviceaccounts, uids and userextras). Since 1.36 it knows
// others, constrained to what the request does, which cannot be asked for
// truthfully from outside. So a client that these rules do not allow gets
// UpstreamDecides if it can be forwarded as itself, else 403. Likewise for
// nodes named without groups, whom the two kinds of rules put in different
// groups.
func (a *Authorizer) Impersonate(ctx context.Context, id *Identity, r *api.Request) (*Subject, error) {
	s := &Subject{Identity: id, User: id.User, Offline: id.Offline}
	if !r.Header.HasPrefix("Impersonate-") {
		return s, nil
	}
	wanted, err := impersonationOf(r.Header)
	if err != nil {
		return nil, err
	}
	r.Header = slices.DeleteFunc(r.Header, func(f api.HeaderField) bool { return isImpersonation(f.Name) })
	if wanted == nil {
		return s, nil
	}
	s.wanted = wanted
	if id.Source == Gateway {
		// Of its own identity the gateway decides nothing, and to do as itself what it
		// was asked to do as another would be to do too much.
		return s.undecided(), nil
	}
	asItself := id.Token != "" || a.opts.TrustedByUpstream
	if asItself && strings.HasPrefix(wanted.Name, nodeUserPrefix) && onlyName(wanted) {
		return s.undecided(), nil
	}
	s.needed = impersonationAttributes(wanted)
	for _, attributes := range s.needed {
		d, err := a.Authorize(ctx, id.User, attributes)
		s.Asked += d.Asked
		switch {
		case err != nil:
			return nil, err
		case !d.Allowed && (asItself || id.Source == Anonymous):
			return s.undecided(), nil
		case !d.Allowed:
			return nil, Forbidden(id.User, constrained(AttributesOf(r.Info()), wanted), d.Reason)
		}
		s.Offline = s.Offline || d.Offline
	}
	s.Impersonated = true
	s.User = impersonatedUser(wanted)
	return s, nil
}

// constrained is the permission that kube-apiserver 1.36 names when it refuses an
// impersonation: to impersonate such a user while doing what the request does
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation/mode.go).
func constrained(a Attributes, wanted *user.DefaultInfo) Attributes {
	mode := "user-info"
	switch {
	case strings.HasPrefix(wanted.Name, nodeUserPrefix):
		mode = "arbitrary-node"
	case strings.HasPrefix(wanted.Name, serviceaccount.ServiceAccountUsernamePrefix):
		mode = "serviceaccount"
	}
	a.Verb = "impersonate-on:" + mode + ":" + a.Verb
	return a
}

// Wanted is whom the client asks to act as, allowed or not; nil if nobody. A node named
// without groups is in that of nodes, for it may be treated as such.
func (s *Subject) Wanted() *User {
	if s.wanted == nil {
		return nil
	}
	wanted := *s.wanted
	if strings.HasPrefix(wanted.Name, nodeUserPrefix) && onlyName(&wanted) {
		wanted.Groups = []string{user.NodesGroup}
	}
	return impersonatedUser(&wanted)
}

func (s *Subject) undecided() *Subject {
	u := *s.Identity.User
	u.gateway, u.undecided = false, true
	s.User, s.UpstreamDecides, s.needed = &u, true, nil
	return s
}

func onlyName(u *user.DefaultInfo) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

// impersonationOf reads the headers (processImpersonationHeaders in
// k8s.io/apiserver/pkg/endpoints/filters/impersonation). It is nil when nobody
// is to be impersonated.
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

// impersonationAttributes are the permissions that it takes to impersonate
// wanted.
func impersonationAttributes(wanted *user.DefaultInfo) []Attributes {
	attributes := func(group, resource, name string) Attributes {
		return Attributes{ResourceRequest: true, Verb: "impersonate", APIGroup: group, APIVersion: "v1", Resource: resource, Name: name}
	}
	const authentication = "authentication.k8s.io"

	var needed []Attributes
	if namespace, name, err := serviceaccount.SplitUsername(wanted.Name); err == nil {
		account := attributes("", "serviceaccounts", name)
		account.Namespace = namespace
		needed = append(needed, account)
	} else {
		needed = append(needed, attributes("", "users", wanted.Name))
	}
	if wanted.UID != "" {
		needed = append(needed, attributes(authentication, "uids", wanted.UID))
	}
	for _, group := range wanted.Groups {
		needed = append(needed, attributes("", "groups", group))
	}
	for _, key := range sortedKeys(wanted.Extra) {
		for _, value := range wanted.Extra[key] {
			extra := attributes(authentication, "userextras", value)
			extra.Subresource = key
			needed = append(needed, extra)
		}
	}
	return needed
}

// impersonatedUser completes the groups as kube-apiserver does: those of a
// service account unless some are named, and system:authenticated or
// system:unauthenticated.
func impersonatedUser(wanted *user.DefaultInfo) *User {
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
