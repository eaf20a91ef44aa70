package source

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsStatus reports whether err is a response of the server.
func IsStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// IsExpired reports whether the server no longer knows the requested version.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// IsTooLarge reports whether the server has not reached the requested version.
func IsTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsRejected reports whether the server rejected the request in a way that another attempt will not
// change soon: no permission, no such resource, method or encoding, or an invalid request.
func IsRejected(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}
