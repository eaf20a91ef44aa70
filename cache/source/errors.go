package source

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsStatus reports an error that is the source's own answer.
func IsStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// IsExpired reports a version that the source has forgotten.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// IsTooLarge reports a version that the source has not reached.
func IsTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsRejected reports an answer that asking again will not change soon: no
// permission, no such resource, no such method or encoding, nonsense.
func IsRejected(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}
