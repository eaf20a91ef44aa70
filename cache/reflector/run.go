package reflector

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
)

// Run fills the store and keeps it up to date until ctx is done or it cannot continue. It returns
// the reason, which is the cause of ctx if that is done.
func (f *Reflector) Run(ctx context.Context) error {
	f.load(ctx)
	f.offerLoaded()
	defer f.withdraw()
	for {
		began := time.Now()
		err := f.stream(ctx)
		fed := f.health.lost(err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		listed := f.relist
		reason, final := f.after(err)
		if f.rejectedForLong(err) {
			reason, final = "refused", true
		}
		if f.loaded != nil {
			f.Checkpoint.ForgetCluster() // another cluster may respond next time
		} else if f.brokeAt.IsZero() && (reason == "error" || reason == "silent" || reason == "suspect") {
			f.brokeAt = time.Now()
		}
		unloaded := final && f.unload(err)
		if errors.Is(err, errOtherHistory) {
			f.OnOtherHistory(f.brokeAt)
		}
		if unloaded {
			continue
		}
		f.relist = f.relist || f.provisional
		if f.relist && !listed {
			f.backoff.reset() // the server responded, and lists are limited anyway
		}
		f.Restarts.WithLabelValues(reason).Inc()
		if final {
			return err
		}
		if !f.published.Load() {
			f.publishUnconfirmed() // first: callers that are woken look at once
		}
		if !f.published.Load() && !errors.Is(err, errContinued) {
			f.Failed(err)
		}
		if !fed && reason == "error" {
			f.Outage.suspect()
		}
		delay := f.backoff.next(err, fed && time.Since(began) >= healthyAfter)
		if !f.pause(ctx, reason, err, delay) {
			return context.Cause(ctx)
		}
	}
}

// after decides what the end of a stream means for the next one. If final, there is none.
func (f *Reflector) after(err error) (reason string, final bool) {
	switch {
	case errors.Is(err, errEnded):
		return "ended", false
	case errors.Is(err, store.ErrRewound):
		return "rewound", true
	case errors.Is(err, ErrDecode):
		return "decode", true
	case errors.Is(err, errSilent):
		return "silent", false
	case errors.Is(err, store.ErrSuspect):
		return "suspect", false
	case errors.Is(err, ErrLate):
		return "late", false
	case errors.Is(err, store.ErrOutOfOrder):
		reason = "order"
	case source.IsExpired(err):
		reason = "expired"
	case source.IsTooLarge(err):
		reason = "too_large"
	default:
		return "error", false
	}
	f.relist = true
	return reason, false
}

// rejectedLimit is how long a source may reject what it allowed before. kube-apiserver rejects
// everything until it has read its RBAC objects.
const rejectedLimit = time.Minute

// rejectedForLong reports, after a stream ended with err, whether the source keeps rejecting what
// it allowed before. The collection then stops: otherwise its state would age forever, whereas
// reads without a collection are forwarded.
func (f *Reflector) rejectedForLong(err error) bool {
	if !f.published.Load() || !apierrors.IsForbidden(err) {
		f.rejectedSince = time.Time{}
		return false
	}
	if f.rejectedSince.IsZero() {
		f.rejectedSince = time.Now()
	}
	return time.Since(f.rejectedSince) >= rejectedLimit
}

// stream lists if necessary, and watches until the watch ends. It always returns an error; after a
// clean end it is errEnded.
func (f *Reflector) stream(ctx context.Context) error {
	if err := f.learnKind(ctx); err != nil {
		return err
	}
	if f.loaded != nil {
		if err := f.checkLoaded(ctx); err != nil {
			return err
		}
	}
	if f.store != nil && !f.relist {
		return f.resume(ctx)
	}
	return f.list(ctx)
}
