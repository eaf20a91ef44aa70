package authz

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/proxy/authn"
)

// ErrUpstreamDecides is returned by Authorize for the user of a authn.Subject with
// UpstreamDecides set: the request must be forwarded.
var ErrUpstreamDecides = errors.New("the impersonation is the upstream's to decide")

// Forbidden is kube-apiserver's answer 403, word for word
// (responsewriters.ForbiddenStatusError). reason is the authorizer's, "" without.
func Forbidden(u user.Info, a Attributes, reason string) *apierrors.StatusError {
	message := authn.EscapeHTML(forbiddenMessage(u, &a))
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.APIGroup, Resource: a.Resource}, a.Name, errors.New(message))
}

func forbiddenMessage(u user.Info, a *Attributes) string {
	if !a.ResourceRequest {
		return fmt.Sprintf("User %q cannot %s path %q", u.GetName(), a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Namespace != "" {
		return fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q",
			u.GetName(), a.Verb, resource, a.APIGroup, a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q at the cluster scope",
		u.GetName(), a.Verb, resource, a.APIGroup)
}
