package registry

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// watchExpired is the message of kube-apiserver (apiserver, storage/etcd3/errors.go) for a watch
// whose history is gone.
const watchExpired = "The resourceVersion for the provided watch is too old."

// tooLargeRetry is the Retry-After, in seconds, of a request for a revision that is not reached
// yet, as in kube-apiserver's watch cache (apiserver, storage/cacher/watch_cache.go,
// resourceVersionTooHighRetrySeconds).
const tooLargeRetry = 1

// unavailableRetry is the Retry-After, in seconds, when the store did not make a change.
const unavailableRetry = 1

// ErrTooLarge rejects an object above the engine's limit: 500 with the message that
// kube-apiserver passes on from etcd. The endpoint handlers know it
// by code and text (apiserver, endpoints/handlers/rest.go, isTooLargeError) and try
// again without managedFields.
var ErrTooLarge error = tooLargeError{}

type tooLargeError struct{}

func (tooLargeError) Error() string    { return "etcdserver: request is too large" }
func (tooLargeError) Code() codes.Code { return codes.InvalidArgument }

// engineError translates an error of the engine for the callers of a Store, apart from
// conflicts, compaction and revisions that are not reached yet.
func engineError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrTooLarge):
		return ErrTooLarge
	case errors.Is(err, engine.ErrUncertain):
		// 504, and no Retry-After: clients would repeat writes that may have happened.
		return apierrors.NewTimeoutError(err.Error(), 0)
	case errors.Is(err, engine.ErrClosed), errors.Is(err, engine.ErrNoRoom):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, engine.ErrUnavailable):
		unavailable := apierrors.NewServiceUnavailable(err.Error())
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: unavailableRetry}
		return unavailable
	default:
		return err
	}
}

// withRetryAfter adds to an error about a resourceVersion that is not reached yet when to try
// again; etcd3 leaves that to the watch cache.
func withRetryAfter(err error) error {
	var status *apierrors.StatusError
	if storage.IsTooLargeResourceVersion(err) && errors.As(err, &status) {
		status.ErrStatus.Details.RetryAfterSeconds = tooLargeRetry
	}
	return err
}

// watchStatus returns the object of the ERROR event that ends a watch, nil if it ends without
// one because its client left or the engine was closed.
func watchStatus(err error) *metav1.Status {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, engine.ErrClosed) {
		return nil
	}
	if errors.Is(err, engine.ErrCompacted) {
		err = apierrors.NewResourceExpired(watchExpired)
	}
	var known apierrors.APIStatus
	if !errors.As(engineError(err), &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}
