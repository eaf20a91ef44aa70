package authz

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

// Impersonate returns whom a request of id acts as, and removes the Impersonate-* headers from r's
// header.
//
// The rules are those that kube-apiserver has always had (verb impersonate on users, groups,
// serviceaccounts, uids and userextras). Since 1.36 it has others, constrained to what the request
// does, which cannot be reviewed truthfully from outside. So a client that these rules do not allow
// gets UpstreamDecides if it can be forwarded as itself, else 403. The same goes for nodes named
// without groups, whom the two kinds of rules put into different groups.
func (a *Authorizer) Impersonate(ctx context.Context, id *authn.Identity, r *api.Request) (*authn.Subject, error) {
	s := &authn.Subject{Identity: id, User: id.User, Offline: id.Offline}
	if !r.Header.HasPrefix("Impersonate-") {
		return s, nil
	}
	requested, err := authn.TakeImpersonation(&r.Header)
	if err != nil {
		return nil, err
	}
	if requested == nil {
		return s, nil
	}
	s.Requested = requested
	if id.Source == authn.Gateway {
		// The gateway decides nothing about its own identity. Serving the request with the
		// gateway's own rights would grant more than the impersonated user has.
		return s.LeaveToUpstream(), nil
	}
	asItself := id.Token != "" || a.opts.TrustedByUpstream
	if asItself && authn.IsBareNode(requested) {
		return s.LeaveToUpstream(), nil
	}
	for _, attributes := range impersonationAttributes(requested) {
		d, err := a.Authorize(ctx, id.User, attributes)
		s.Reviews += d.Reviews
		switch {
		case err != nil:
			return nil, err
		case !d.Allowed && (asItself || id.Source == authn.Anonymous):
			return s.LeaveToUpstream(), nil
		case !d.Allowed:
			return nil, Forbidden(id.User, constrained(AttributesOf(r.Info()), requested), d.Reason)
		}
		s.Offline = s.Offline || d.Offline
	}
	s.Impersonated = true
	s.User = authn.ImpersonatedUser(requested)
	return s, nil
}

// constrained returns the permission that kube-apiserver 1.36 names when it denies an impersonation:
// to impersonate such a user while doing what the request does
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation/mode.go).
func constrained(a Attributes, requested *user.DefaultInfo) Attributes {
	mode := "user-info"
	switch {
	case strings.HasPrefix(requested.Name, authn.NodeUserPrefix):
		mode = "arbitrary-node"
	case strings.HasPrefix(requested.Name, serviceaccount.ServiceAccountUsernamePrefix):
		mode = "serviceaccount"
	}
	a.Verb = "impersonate-on:" + mode + ":" + a.Verb
	return a
}

// ImpersonationOf returns the permissions by which the client of s impersonates its user, none if it
// does not.
func ImpersonationOf(s *authn.Subject) []Attributes {
	if !s.Impersonated || s.Requested == nil {
		return nil
	}
	return impersonationAttributes(s.Requested)
}

// impersonationAttributes returns the permissions needed to impersonate a user.
func impersonationAttributes(requested *user.DefaultInfo) []Attributes {
	attributes := func(group, resource, name string) Attributes {
		return Attributes{ResourceRequest: true, Verb: "impersonate", APIGroup: group, APIVersion: "v1", Resource: resource, Name: name}
	}
	const authentication = "authentication.k8s.io"

	var needed []Attributes
	if namespace, name, err := serviceaccount.SplitUsername(requested.Name); err == nil {
		account := attributes("", "serviceaccounts", name)
		account.Namespace = namespace
		needed = append(needed, account)
	} else {
		needed = append(needed, attributes("", "users", requested.Name))
	}
	if requested.UID != "" {
		needed = append(needed, attributes(authentication, "uids", requested.UID))
	}
	for _, group := range requested.Groups {
		needed = append(needed, attributes("", "groups", group))
	}
	for _, key := range slices.Sorted(maps.Keys(requested.Extra)) {
		for _, value := range requested.Extra[key] {
			extra := attributes(authentication, "userextras", value)
			extra.Subresource = key
			needed = append(needed, extra)
		}
	}
	return needed
}
