package authz

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// ErrUpstreamDecides is returned by Authorize for the user of a Subject with UpstreamDecides set:
// the request must be forwarded.
var ErrUpstreamDecides = errors.New("the impersonation is the upstream's to decide")

// Forbidden returns kube-apiserver's 403 response. reason is the authorizer's, or "".
func Forbidden(u user.Info, a Attributes, reason string) *apierrors.StatusError {
	return responsewriters.ForbiddenStatusError(a.Record(u), reason)
}
