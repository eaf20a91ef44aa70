package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// health is how a feed's connection is doing.
type health struct {
	mu struct {
		sync.Mutex
		open     bool   // a watch is being read
		live     bool   // that watch brings events, not a list
		accepted bool   // the source says that it accepted the watch
		proven   bool   // the watch has brought all that there was when it began
		target   uint64 // the version of that
		vague    bool   // target was true some time before the watch began
		opening  time.Time
		lost     time.Time // until when the store was fed, while it is not
		err      error
		cancel   context.CancelCauseFunc // of the open watch
	}
}

const (
	// settling is how long a watch must be open, and bring nothing, to count as one that
	// feeds without having brought what there was when it began: that may be of other
	// resources. kube-apiserver accepts a watch before it says that the version is too old.
	// Where what it brings is under way for longer, that comes on top.
	settling = time.Second
	// grace is how long a broken feed counts as synced, with the age that it
	// has: every watch ends at times and is resumed at once.
	grace = 2 * time.Second
)

// opened says that a watch begins. live: what it brings is applied. Until it has come to
// target, it catches up; to what there is now if target is vague, an answer that was under way
// for long.
func (h *health) opened(live bool, target uint64, vague bool, cancel context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.target, h.mu.vague = target, vague
	h.mu.open, h.mu.live, h.mu.accepted, h.mu.proven = true, live, false, false
	h.mu.opening = time.Now()
	h.mu.cancel = cancel
}

// live says that the open watch has brought a list and goes on with events.
func (h *health) live() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live, h.mu.proven = true, true
	h.mu.opening = time.Now()
}

// sign says that the open watch was accepted, or (brought) has brought something and come
// to a version.
func (h *health) sign(version uint64, brought bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.accepted = true
	switch {
	case h.mu.proven || !brought:
	case version >= h.mu.target:
		h.mu.proven = !h.mu.vague
	default:
		h.mu.opening = time.Now()
	}
}

// lost says that the stream is over and tells whether it fed the store. contact
// is the connection's last, delay for how long what it brought was under way.
func (h *health) lost(err error, contact time.Time, delay time.Duration) (fed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now().Add(-delay)
	if fed = h.fedLocked(contact, delay); fed {
		h.mu.lost = now
		if !contact.IsZero() && contact.Before(now) {
			h.mu.lost = contact
		}
	}
	h.mu.open = false
	h.mu.cancel = nil
	h.mu.err = err
	return fed
}

// listed says that the store has a state which was true at that time or later.
func (h *health) listed(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.lost = at
}

// fedLocked reports whether the store is being fed: a watch is open, and has brought what
// there was when it began, or has brought nothing for longer than a refusal takes.
func (h *health) fedLocked(contact time.Time, delay time.Duration) bool {
	if !h.mu.open || !h.mu.live {
		return false
	}
	settled := h.mu.opening.Add(settling + delay)
	return h.mu.proven || h.mu.accepted && !time.Now().Before(settled) || contact.After(settled)
}

// Restart implements reflector.
func (f *Reflector) Restart(cause error) { f.health.restart(cause) }

// SendsBookmarks implements reflector.
func (f *Reflector) SendsBookmarks() bool { return f.progress.Load() }

// restart ends the open watch with cause.
func (h *health) restart(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.cancel != nil {
		h.mu.cancel(cause)
	}
}

// state tells whether a complete store is synced or stale. contact is the
// connection's last, delay for how long what it brings is under way, staleAfter the
// silence that a live one may have.
func (h *health) state(contact time.Time, delay, staleAfter time.Duration) State {
	s := h.phase(contact, delay, staleAfter)
	s.Delay = delay
	return s
}

func (h *health) phase(contact time.Time, delay, staleAfter time.Duration) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.fedLocked(contact, delay) {
		phase := Stale
		if time.Since(h.mu.lost) < grace {
			phase = Synced
		}
		return State{Phase: phase, Since: h.mu.lost, LastContact: h.mu.lost, Err: h.mu.err}
	}
	if time.Since(contact) > staleAfter {
		return State{Phase: Stale, Since: contact, LastContact: contact, Err: errSilent}
	}
	return State{Phase: Synced, Since: h.mu.opening, LastContact: contact}
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
	// healthyAfter is how long a stream must last to count as a success. Failures
	// can take as long: a connection that times out.
	healthyAfter = 10 * time.Second
)

func (b *backoff) reset() { b.failures = 0 }

// next is the delay after a stream that ended with err. healthy: it fed the
// store and lasted for healthyAfter; if it then simply ended, it is resumed at
// once.
func (b *backoff) next(err error, healthy bool) time.Duration {
	if healthy {
		b.failures = 0
		if errors.Is(err, errEnded) {
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
