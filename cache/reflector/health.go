package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
)

// health tracks whether the open watch keeps the store up to date.
type health struct {
	source source.Source
	mu     struct {
		sync.Mutex
		open     bool   // a watch is being read
		live     bool   // it brings events, not initial events
		accepted bool   // the source has accepted it
		complete bool   // it has brought everything that existed when it began
		target   uint64 // the version of that
		vague    bool   // target was a while old when the watch began
		opening  time.Time
		lost     time.Time // until when the store was up to date, while it is not
		err      error
		cancel   context.CancelCauseFunc // of the open watch
	}
}

const (
	// settling is how long a watch must be open to count as healthy although it has brought
	// nothing: what existed when it began may be of other resources. kube-apiserver accepts a watch
	// before it reports that the version is too old. The delay of the connection is added.
	settling = time.Second
	// grace is how long a collection with a broken watch still counts as synced, because every
	// watch ends at times and is resumed at once.
	grace = 2 * time.Second
)

// opened records that a watch begins. live is true if its events are applied. Until it has reached
// target, it is catching up; if target is vague, until it settles.
func (h *health) opened(live bool, target uint64, vague bool, cancel context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.target, h.mu.vague = target, vague
	h.mu.open, h.mu.live, h.mu.accepted, h.mu.complete = true, live, false, false
	h.mu.opening = time.Now()
	h.mu.cancel = cancel
}

// live records that the initial events are complete.
func (h *health) live() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live, h.mu.complete = true, true
	h.mu.opening = time.Now()
}

// contact records that the watch was accepted and, if brought, that it has brought something up to
// version.
func (h *health) contact(version uint64, brought bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.accepted = true
	switch {
	case h.mu.complete || !brought:
	case version >= h.mu.target:
		h.mu.complete = !h.mu.vague
	default:
		h.mu.opening = time.Now()
	}
}

// lost records that the stream has ended and reports whether it kept the store up to date.
func (h *health) lost(err error) (fed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	contact, now := h.source.LastContact(), time.Now().Add(-h.source.Delay())
	if fed = h.isCurrentLocked(); fed {
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

// listed records that the store's state was true at that time or later.
func (h *health) listed(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.lost = at
}

// isCurrentLocked reports whether the store is being kept up to date: a watch is open, and it has
// brought everything that existed when it began, or it has brought nothing for longer than a
// rejection takes.
func (h *health) isCurrentLocked() bool {
	if !h.mu.open || !h.mu.live || h.mu.complete {
		return h.mu.open && h.mu.live
	}
	settled := h.mu.opening.Add(settling + h.source.Delay())
	return h.mu.accepted && !time.Now().Before(settled) || h.source.LastContact().After(settled)
}

// Restart ends the open watch with cause, so that the source is examined.
func (f *Reflector) Restart(cause error) {
	f.health.mu.Lock()
	defer f.health.mu.Unlock()
	if f.health.mu.cancel != nil {
		f.health.mu.cancel(cause)
	}
}

// state returns whether a complete store is synced or stale. staleAfter is how long a healthy
// connection may be silent.
func (h *health) state(staleAfter time.Duration) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	contact, delay := h.source.LastContact(), h.source.Delay()
	if !h.isCurrentLocked() {
		phase := Stale
		if time.Since(h.mu.lost) < grace {
			phase = Synced
		}
		return State{Phase: phase, Since: h.mu.lost, LastContact: h.mu.lost, Delay: delay, Err: h.mu.err}
	}
	if time.Since(contact) > staleAfter {
		return State{Phase: Stale, Since: contact, LastContact: contact, Delay: delay, Err: errSilent}
	}
	return State{Phase: Synced, Since: h.mu.opening, LastContact: contact, Delay: delay}
}

// backoff spaces the attempts of a reflector. The first one after a success follows almost at once,
// so that a short interruption goes unnoticed. Further ones are spaced exponentially, with jitter,
// so that reflectors neither overload a server that is down nor act in step.
type backoff struct{ failures int }

// jitter returns a random number in [0, n). Tests replace it.
var jitter = rand.Int64N

const (
	firstDelay = 100 * time.Millisecond
	baseDelay  = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
	// healthyAfter is how long a stream must last to count as a success. A failure may take as
	// long, for example a connection that times out.
	healthyAfter = 10 * time.Second
)

func (b *backoff) reset() { b.failures = 0 }

// next returns the delay after a stream that ended with err. healthy is true if the stream kept the
// store up to date and lasted for healthyAfter; if it ended cleanly, it is resumed at once.
func (b *backoff) next(err error, healthy bool) time.Duration {
	if healthy {
		b.failures = 0
		if errors.Is(err, errEnded) {
			return 0 // the watch timed out
		}
	}
	delay := time.Duration(jitter(int64(firstDelay)))
	if b.failures > 0 {
		delay = min(maxDelay, baseDelay<<min(b.failures-1, 10))
		delay = delay/2 + time.Duration(jitter(int64(delay)))
	}
	b.failures++
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, min(maxDelay, time.Duration(seconds)*time.Second))
	}
	return delay
}

// Phase is a phase in the life of a collection: Starting, then Synced and Stale in turn, and
// finally Stopped.
type Phase uint8

// The phases.
const (
	// Starting is before the first complete list. There are no reads.
	Starting Phase = iota
	// Synced is complete and up to date, or about to be again: a watch that has ended is resumed at
	// once, and meanwhile LastContact gives the age of the state.
	Synced
	// Stale is complete, but the watch is broken or its connection silent.
	Stale
	// Stopped is the end.
	Stopped
)

// String returns the name for metrics and logs.
func (p Phase) String() string {
	return [...]string{"starting", "synced", "stale", "stopped"}[p]
}

// State is the state of a collection at one moment.
type State struct {
	Phase Phase
	// Since is when the phase began. For Stale it is the last moment at which the collection was
	// known to be up to date, so that the time since then is the age of what it serves.
	Since time.Time
	// LastContact is the last sign of life of the watch's connection, zero before the first. For a
	// broken watch it is not after the break.
	LastContact time.Time
	// Delay is the lower bound of the connection's delay, see Source.Delay. A watch may be slow and
	// healthy.
	Delay time.Duration
	// Err is why the collection is stale or stopped or, while it is starting, why the last attempt
	// failed. For a synced collection it is why its watch has just ended.
	Err error
}

// CurrentAt returns the last moment at which the collection was known to be up to date.
func (s State) CurrentAt() time.Time {
	if s.Phase == Stale {
		return s.Since
	}
	return s.LastContact
}

// Staleness returns how old the state may be, as far as its connection tells.
func (s State) Staleness() time.Duration { return max(time.Since(s.LastContact), s.Delay) }

// Errors that end a stream, besides those of the source.
var (
	errSilent = errors.New("no event and no bookmark for too long")
	errBehind = errors.New("the API server lags behind others")
	errEnded  = errors.New("the watch ended")
	// ErrDecode means that the source sent something that is not an object of the resource.
	ErrDecode = errors.New("cannot decode an object from the upstream")
	// ErrLate means that the source has changes that its watch does not bring.
	ErrLate = errors.New("the watch lags behind the upstream")
	// errNoInitialEnd is treated as ErrUnsupported.
	errNoInitialEnd = fmt.Errorf("the initial events did not end: %w", source.ErrUnsupported)
)
