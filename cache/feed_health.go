package cache

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// health is how a feed's connection is doing.
type health struct {
	mu struct {
		sync.Mutex
		open     bool // a watch is being read
		live     bool // that watch brings events, not a list
		accepted bool // and the source is known to have accepted it
		opening  time.Time
		lost     time.Time // until when the store was fed, while it is not
		err      error
		cancel   context.CancelCauseFunc // of the open watch
	}
}

// acceptedAfter is how long a watch must have been open to count as accepted,
// for sources that do not tell.
const acceptedAfter = time.Second

// opened says that a watch begins. live: what it brings is applied.
func (h *health) opened(live bool, cancel context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.open, h.mu.live, h.mu.accepted = true, live, false
	h.mu.opening = time.Now()
	h.mu.cancel = cancel
}

// live says that the open watch has brought a list and goes on with events.
func (h *health) live() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live, h.mu.accepted = true, true
	h.mu.opening = time.Now()
}

// accepted says that the source has accepted the open watch.
func (h *health) accepted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.accepted = true
}

// lost says that the watch is over. contact is the connection's last.
func (h *health) lost(err error, contact int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.fedLocked(contact) {
		h.mu.lost = now
		if at := time.Unix(0, contact); contact > 0 && at.Before(now) {
			h.mu.lost = at
		}
	}
	h.mu.open, h.mu.live, h.mu.accepted = false, false, false
	h.mu.cancel = nil
	h.mu.err = err
	if err == nil {
		h.mu.err = errEnded
	}
}

// listed says that the store has a state which was true at that time or later.
func (h *health) listed(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.lost = at
}

// fedLocked reports whether the store is being fed: a watch is open, and known
// to have been accepted or open for longer than a refusal takes.
func (h *health) fedLocked(contact int64) bool {
	if !h.mu.open || !h.mu.live {
		return false
	}
	return h.mu.accepted || contact > h.mu.opening.Add(acceptedAfter).UnixNano()
}

// restart ends the open watch with cause.
func (h *health) restart(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.cancel != nil {
		h.mu.cancel(cause)
	}
}

// state tells whether a complete store is synced or stale. contact is the
// connection's last, staleAfter the silence that a live one may have.
func (h *health) state(contact int64, staleAfter time.Duration) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Unix(0, contact)
	if !h.fedLocked(contact) {
		return State{Phase: Stale, Since: h.mu.lost, LastContact: h.mu.lost, Err: h.mu.err}
	}
	if time.Since(at) > staleAfter {
		return State{Phase: Stale, Since: at, LastContact: at, Err: errSilent}
	}
	return State{Phase: Synced, Since: h.mu.opening, LastContact: at}
}

// watchdog ends a stream that is silent for too long.
type watchdog struct {
	bite context.CancelCauseFunc
	mu   struct {
		sync.Mutex
		timer *time.Timer // nil while nothing is watched
		limit time.Duration
		cause error
		last  time.Time // sign of life
	}
}

// watch expects signs of life at least every limit from now on; their lack ends
// the stream with cause. While it watches, watch changes nothing.
func (d *watchdog) watch(limit time.Duration, cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.timer != nil {
		return
	}
	d.mu.limit, d.mu.cause, d.mu.last = limit, cause, time.Now()
	d.mu.timer = time.AfterFunc(limit, d.look)
}

// alive is a sign of life.
func (d *watchdog) alive() {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.last = now
}

// look runs when the limit since some earlier sign of life has passed.
func (d *watchdog) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.timer == nil {
		return
	}
	left := d.mu.limit - time.Since(d.mu.last)
	if left > 0 {
		d.mu.timer.Reset(left)
		return
	}
	d.bite(d.mu.cause)
}

// stop expects nothing any more, until the next watch.
func (d *watchdog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.timer != nil {
		d.mu.timer.Stop()
		d.mu.timer = nil
	}
}

// backoff spaces the attempts of a feed: the first one after a success comes at
// once, give or take, so that a short break goes unnoticed; then exponentially,
// so that a source that is down is left alone, and never in step with the others.
type backoff struct {
	jitter   func(n int64) int64 // in [0,n)
	failures int
}

const (
	firstDelay = 100 * time.Millisecond
	baseDelay  = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
	// healthyAfter is how long a stream must last to count as a success.
	healthyAfter = 10 * time.Second
)

// next is the delay after a stream that ended with err after lasting so long. A
// watch that simply ended when it was due is resumed without one.
func (b *backoff) next(err error, lasted time.Duration) time.Duration {
	if lasted >= healthyAfter {
		b.failures = 0
		if err == nil {
			return 0 // its timeout
		}
	}
	delay := time.Duration(b.jitter(int64(firstDelay)))
	if b.failures > 0 {
		delay = min(maxDelay, baseDelay<<min(b.failures-1, 10))
		delay = delay/2 + time.Duration(b.jitter(int64(delay)))
	}
	b.failures++
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, min(maxDelay, time.Duration(seconds)*time.Second))
	}
	return delay
}

// isExpired reports a version that the source has forgotten.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isTooLarge reports a version that the source has not reached.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isRefused reports an answer that asking again will not change soon: no
// permission, no such resource, no such method or encoding, nonsense.
func isRefused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}
