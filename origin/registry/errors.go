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

// What clients read when history is gone; the words are those of kube-apiserver
// (apiserver, storage/etcd3/errors.go).
const (
	watchExpired    = "The resourceVersion for the provided watch is too old."
	listExpired     = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter."
	inconsistentContinue = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// tooLargeRetry is how many seconds a client is told to wait for a revision that is yet to come, as kube-apiserver's
// watch cache says (apiserver, storage/cacher/watch_cache.go, resourceVersionTooHighRetrySeconds).
const tooLargeRetry = 1

// unavailableRetry is how many seconds a client is told to wait for a store that was not asked, or did not do what it was.
const unavailableRetry = 1

// ErrTooLarge is what an object above the engine's limit is refused with: 500 with
// the message that kube-apiserver passes on from etcd. The endpoint handlers know it
// by code and text (apiserver, endpoints/handlers/rest.go, isTooLargeError) and try
// again without managedFields.
var ErrTooLarge error = tooLargeError{}

type tooLargeError struct{}

func (tooLargeError) Error() string    { return "etcdserver: request is too large" }
func (tooLargeError) Code() codes.Code { return codes.InvalidArgument }

// engineError is what an error of the engine means to the callers of a Store. What
// concerns one verb only (conflicts, compaction, revisions to come) is treated there.
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

// listError is engineError for reading keys at a revision: from is the first key that
// could not be read, paging whether a continue token brought the caller there.
func listError(err error, paging bool, from, prefix string, revision uint64) error {
	var future *engine.FutureError
	switch {
	case errors.Is(err, engine.ErrCompacted) && paging:
		return continueExpiredError(from, prefix)
	case errors.Is(err, engine.ErrCompacted):
		return apierrors.NewResourceExpired(listExpired)
	case errors.As(err, &future):
		return storage.NewTooLargeResourceVersionError(revision, future.Current, tooLargeRetry)
	default:
		return engineError(err)
	}
}

// continueExpiredError carries a token of revision -1: go on from the same key, at
// whatever is current.
func continueExpiredError(from, prefix string) error {
	token, err := storage.EncodeContinue(from, prefix, -1)
	if err != nil {
		return apierrors.NewResourceExpired(continueExpired)
	}
	expired := apierrors.NewResourceExpired(inconsistentContinue)
	expired.ErrStatus.Continue = token
	return expired
}

// watchStatus is the object of the ERROR event that ends a watch; nil when it ends
// without one, because its client left or the engine was closed.
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
