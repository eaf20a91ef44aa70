package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// ErrUnavailable is the cause if the upstream is unavailable.
var ErrUnavailable = errors.New("the upstream could not be asked")

// ErrForbidden is the cause if the upstream does not let the gateway create reviews. A
// kube-apiserver that has not read its RBAC objects yet answers like this, too. Unlike
// ErrUnavailable it does not make older results usable: an operator who revokes the permission to
// create reviews expects the gateway to let nobody in.
var ErrForbidden = errors.New("the upstream does not let the gateway ask")

// ErrRejected is the cause if the upstream rejects the review itself. Its message is about the
// gateway: it belongs in the log and is not for clients.
var ErrRejected = errors.New("the upstream refused the question")

// ErrNoReview is the cause if a review is needed and the context forbids reviews, see
// WithoutReviews. It says nothing about what the user may do.
var ErrNoReview = errors.New("the upstream is not to be asked")

// WithoutReviews returns a context in which no review is created: whatever is neither cached nor
// decided in this process fails with ErrNoReview.
func WithoutReviews(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutReviews{}, true)
}

type withoutReviews struct{}

// Disabled reports whether ctx was returned by WithoutReviews.
func Disabled(ctx context.Context) bool { return ctx.Value(withoutReviews{}) != nil }

// Settings are those of the packages that create reviews. Zero values select the defaults.
type Settings struct {
	// OfflineTTL is how long older results are used while the upstream is unavailable or takes more
	// than StaleWait. Default: not at all.
	OfflineTTL time.Duration
	// OnChange is called when there is something that the last Save did not return. It must not
	// block.
	OnChange func()
	// Reachable reports whether the upstream is reachable; nil if that is unknown.
	Reachable func() bool
	// CacheSize limits the cached results, which users share.
	CacheSize int
	// ReviewTimeout is how long a request waits for a review (default 10 s).
	ReviewTimeout time.Duration
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Log receives rejected reviews, never a credential. Default: discarded.
	Log *slog.Logger
}

// Complete sets the defaults.
func (s *Settings) Complete(cacheSize int) {
	s.CacheSize = cmp.Or(s.CacheSize, cacheSize)
	s.ReviewTimeout = cmp.Or(s.ReviewTimeout, defaults.ReviewTimeout)
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	if s.OnChange == nil {
		s.OnChange = func() {}
	}
}

// Reviews creates the reviews of one kind. It is safe for concurrent use.
type Reviews struct {
	Outage     Outage
	timeout    time.Duration
	resource   string
	log        *slog.Logger
	rejections rate.Sometimes
	offlineTTL atomic.Int64
}

// New returns Reviews with complete settings.
func New(resource string, s *Settings) *Reviews {
	r := &Reviews{
		Outage: Outage{Reachable: s.Reachable}, timeout: s.ReviewTimeout, resource: resource,
		log: s.Log, rejections: rate.Sometimes{Interval: LogInterval},
	}
	r.SetOfflineTTL(s.OfflineTTL)
	return r
}

// OfflineTTL returns Settings.OfflineTTL, which SetOfflineTTL replaces.
func (r *Reviews) OfflineTTL() time.Duration { return time.Duration(r.offlineTTL.Load()) }

// SetOfflineTTL replaces Settings.OfflineTTL for results from now on.
func (r *Reviews) SetOfflineTTL(ttl time.Duration) { r.offlineTTL.Store(int64(ttl)) }

// WithTimeout returns ctx limited to the timeout of a review, or to StaleWait if there is an older
// result. The time covers waiting for a review that is in flight already.
func (r *Reviews) WithTimeout(ctx context.Context, stale bool) (context.Context, context.CancelFunc) {
	limit := r.timeout
	if stale {
		limit = min(limit, StaleWait)
	}
	return context.WithTimeoutCause(ctx, limit, errSlow)
}

const (
	// retryDelay is the time between the two attempts to create a review.
	retryDelay = 100 * time.Millisecond
	// LogInterval is how often a condition that each request may meet is logged at most.
	LogInterval = 10 * time.Second
)

// Create calls create within the timeout, and a second time if the upstream was unavailable: a review
// changes nothing, and a connection that the upstream just closed says nothing about the upstream. It
// logs rejected reviews; package upstream logs forbidden ones.
func Create[T any](ctx context.Context, r *Reviews, create func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	result, err := create(ctx)
	if err == nil {
		return result, nil
	}
	doing := "reviewing by " + r.resource
	if err = Error(doing, err); errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		delay := time.NewTimer(retryDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
			if result, err = create(ctx); err == nil {
				return result, nil
			}
			err = Error(doing, err)
		case <-ctx.Done():
		}
	}
	if errors.Is(err, ErrRejected) {
		r.rejections.Do(func() { r.log.Warn("upstream rejected a review", "resource", r.resource, "error", err) })
	}
	return result, err
}

// Error classifies the error of a review. Statuses that tell about the state of the upstream, and
// all errors without a status, are ErrUnavailable.
func Error(doing string, err error) error {
	cause := ErrUnavailable
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == 401, code == 403:
			cause = ErrForbidden
		case code < 500 && code != 429:
			cause = ErrRejected
		}
	}
	return fmt.Errorf("%s: %w: %w", doing, cause, withoutStatus{err})
}

// withoutStatus hides the status of a review's error, which answers the gateway's request and not
// the client's.
type withoutStatus struct{ err error }

func (e withoutStatus) Error() string { return e.err.Error() }

// Unwrap shows only errors without a status.
func (e withoutStatus) Unwrap() error {
	var status apierrors.APIStatus
	if errors.As(e.err, &status) {
		return nil
	}
	return e.err
}
