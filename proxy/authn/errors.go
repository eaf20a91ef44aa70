package authn

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// ErrUnauthenticated is the cause of every answer 401. StatusError makes the
// answer of it; the text that it is wrapped in is for logs.
var ErrUnauthenticated = errors.New("unauthenticated")

// StatusError maps an error of this package to the answer for the client.
// Errors that are already a status pass unchanged. An upstream that cannot be
// asked is 503, not 401, so that clients keep their credentials and come back.
func StatusError(err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return apierrors.NewUnauthorized("Unauthorized")
	case errors.Is(err, review.ErrUnavailable), errors.Is(err, review.ErrForbidden):
		status = apierrors.NewServiceUnavailable("the upstream could not be asked who you are and what you may do")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return status
	case errors.Is(err, review.ErrRejected):
		return apierrors.NewInternalError(errors.New("the gateway cannot ask the upstream who you are and what you may do; its log says why"))
	case errors.As(err, &status):
		return status
	}
	return apierrors.NewInternalError(err)
}

// notServed is a 403 that is not about what the user may do.
func notServed(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	err.ErrStatus.Message = "forbidden: " + why
	return err
}

// EscapeHTML keeps a message from looking like HTML, as kube-apiserver does.
func EscapeHTML(s string) string {
	if !strings.ContainsAny(s, "&<>") {
		return s
	}
	return strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;").Replace(s)
}
