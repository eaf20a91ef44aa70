package authn

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// ErrUnauthenticated is the cause of all 401 responses. The text around it is for logs.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrUndetermined is the cause if a review of this process could not determine whether a token is valid.
var ErrUndetermined = errors.New("the token could not be checked")

// StatusError returns the response for an error of this package, of authz or of review. It returns
// a status unchanged. An unavailable upstream is 503, not 401, so that clients keep their
// credentials and retry.
func StatusError(err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return apierrors.NewUnauthorized("Unauthorized")
	case errors.Is(err, review.ErrUnavailable), errors.Is(err, review.ErrForbidden):
		status = apierrors.NewServiceUnavailable("the gateway cannot authenticate or authorize the request at the upstream API server, please try again later")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return status
	case errors.Is(err, review.ErrRejected):
		return apierrors.NewInternalError(errors.New("the upstream API server rejected the gateway's review of the client; the gateway's log states the cause"))
	case errors.As(err, &status):
		return status
	}
	return apierrors.NewInternalError(err)
}

// notServed returns a 403 that is not about the permissions of the user.
func notServed(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	err.ErrStatus.Message = "forbidden: " + why
	return err
}

var htmlEscaper = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// escapeHTML keeps a message from looking like HTML, as kube-apiserver does.
func escapeHTML(s string) string { return htmlEscaper.Replace(s) }
