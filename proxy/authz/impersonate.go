package authz

import (
	"context"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

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
func (a *Authorizer) Impersonate(ctx context.Context, id *authn.Identity, r *api.Request) (*authn.Subject, error) {
	s := &authn.Subject{Identity: id, User: id.User, Offline: id.Offline}
	if !r.Header.HasPrefix("Impersonate-") {
		return s, nil
	}
	wanted, err := authn.TakeImpersonation(&r.Header)
	if err != nil {
		return nil, err
	}
	if wanted == nil {
		return s, nil
	}
	s.Requested = wanted
	if id.Source == authn.Gateway {
		// Of its own identity the gateway decides nothing, and to do as itself what it
		// was asked to do as another would be to do too much.
		return s.LeaveToUpstream(), nil
	}
	asItself := id.Token != "" || a.opts.TrustedByUpstream
	if asItself && authn.IsBareNode(wanted) {
		return s.LeaveToUpstream(), nil
	}
	for _, attributes := range impersonationAttributes(wanted) {
		d, err := a.Authorize(ctx, id.User, attributes)
		s.Asked += d.Asked
		switch {
		case err != nil:
			return nil, err
		case !d.Allowed && (asItself || id.Source == authn.Anonymous):
			return s.LeaveToUpstream(), nil
		case !d.Allowed:
			return nil, Forbidden(id.User, constrained(AttributesOf(r.Info()), wanted), d.Reason)
		}
		s.Offline = s.Offline || d.Offline
	}
	s.Impersonated = true
	s.User = authn.ImpersonatedUser(wanted)
	return s, nil
}

// constrained is the permission that kube-apiserver 1.36 names when it refuses an
// impersonation: to impersonate such a user while doing what the request does
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation/mode.go).
func constrained(a Attributes, wanted *user.DefaultInfo) Attributes {
	mode := "user-info"
	switch {
	case strings.HasPrefix(wanted.Name, authn.NodeUserPrefix):
		mode = "arbitrary-node"
	case strings.HasPrefix(wanted.Name, serviceaccount.ServiceAccountUsernamePrefix):
		mode = "serviceaccount"
	}
	a.Verb = "impersonate-on:" + mode + ":" + a.Verb
	return a
}

// Impersonation returns the permissions by which the sender of s impersonates its user, none if it
// does not.
func Impersonation(s *authn.Subject) []Attributes {
	if !s.Impersonated {
		return nil
	}
	return impersonationAttributes(s.Requested)
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
	for _, key := range authn.SortedKeys(wanted.Extra) {
		for _, value := range wanted.Extra[key] {
			extra := attributes(authentication, "userextras", value)
			extra.Subresource = key
			needed = append(needed, extra)
		}
	}
	return needed
}
