package review

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Settings are common settings of the packages that create reviews. Zero values select the
// defaults.
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
	reachable  func() bool
	timeout    time.Duration
	resource   string
	log        *slog.Logger
	rejections rate.Sometimes
	offlineTTL atomic.Int64
}

// New returns Reviews with complete settings.
func New(resource string, s *Settings) *Reviews {
	r := &Reviews{
		reachable: s.Reachable, timeout: s.ReviewTimeout, resource: resource,
		log: s.Log, rejections: rate.Sometimes{Interval: LogInterval},
	}
	r.SetOfflineTTL(s.OfflineTTL)
	return r
}

// OfflineTTL returns Settings.OfflineTTL, which SetOfflineTTL replaces.
func (r *Reviews) OfflineTTL() time.Duration { return time.Duration(r.offlineTTL.Load()) }

// SetOfflineTTL replaces Settings.OfflineTTL. Users of the results decide whether older ones follow it.
func (r *Reviews) SetOfflineTTL(ttl time.Duration) { r.offlineTTL.Store(int64(ttl)) }

// Unreachable reports whether the upstream is known to be unreachable, so that a request with an older
// result needs no review.
func (r *Reviews) Unreachable() bool { return r.reachable != nil && !r.reachable() }

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
