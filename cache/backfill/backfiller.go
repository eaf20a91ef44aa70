package backfill

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/watchmux"
)

const (
	// Slots is how many collections extend their history at a time.
	Slots = 4
	// stepLimit bounds the requests for one extension, or for the previous states.
	stepLimit = 10 * time.Second
	// waitLimit bounds how long a caller waits, also for other runs.
	waitLimit = 30 * time.Second
	// pauseAfter is how long callers are rejected after a failure that would repeat itself.
	pauseAfter = time.Minute
	// fullLimit is how many steps may fail for lack of room within pauseAfter.
	fullLimit = 16
)

var (
	errUnavailable = errors.New("the cache is not in contact with the upstream")
	errBroken      = errors.New("the backfill ended early")
	errTooSlow     = errors.New("the backfill took too long")
	errAbandoned   = errors.New("nobody waits for the backfill any more")
	errGap         = errors.New("the state at the beginning of the history is not known")
	errNoStates    = errors.New("the upstream no longer has the previous states")
)

// Options configure a Backfiller. All fields are required.
type Options struct {
	Feed  *reflector.Reflector
	Store *store.Store
	// Slots are the slots of all collections. There are Slots of them.
	Slots chan struct{}
	// Context is that of the collection. Its cause is why the collection stops.
	Context context.Context
	// Spawn runs a function on another goroutine, which the caller of Close waits for.
	Spawn   func(func())
	Results *prometheus.CounterVec // by result
	Events  *prometheus.CounterVec // without further labels
}

// Backfiller extends the history of one collection. It is safe for concurrent use.
type Backfiller struct {
	Options
	warned bool // belongs to run

	mu struct {
		sync.Mutex
		callers []*caller
		running bool
		closed  bool
		cancel  context.CancelCauseFunc // of the current step
		// Until resume, callers get failure.
		resume  time.Time
		failure error
		// Until fullUntil, full is the number of steps for whose events the history had no room, and
		// fullAt the highest version of these. Callers up to it are rejected, and after fullLimit steps
		// all, so that a client cannot make the gateway read the same events over and over.
		full      int
		fullAt    uint64
		fullUntil time.Time
	}
}

// caller waits until the history reaches back to rv, and with states until the previous states of
// the events above rv are known.
type caller struct {
	rv     uint64
	states bool
	done   chan error // has room for the result
}

// New returns a Backfiller.
func New(o Options) *Backfiller {
	for _, result := range [...]string{"done", "abandoned", "expired", "full", "failed"} {
		o.Results.WithLabelValues(result) // so that the first one is a change
	}
	o.Events.WithLabelValues() // likewise
	return &Backfiller{Options: o}
}

// Close makes Extend fail. The goroutine ends soon after Options.Context.
func (b *Backfiller) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
}

// Extend returns nil when the history reaches back to rv. With states, the previous states of the
// events above rv are known as well, so that a watch with any filter can start there. Callers that
// wait at the same time share the requests to the upstream. If the upstream does not have the version
// any more, source.IsExpired is true for the error.
func (b *Backfiller) Extend(ctx context.Context, rv uint64, states bool) error {
	if b.Feed.Resource.BypassesWatchCache() {
		return source.ErrNoBookmark
	}
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, errTooSlow)
	defer cancel()
	c := &caller{rv: rv, states: states, done: make(chan error, 1)}
	if err := b.enter(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		b.leave(c)
		return context.Cause(ctx)
	}
}

// enter adds a caller and starts a run unless there is one.
func (b *Backfiller) enter(c *caller) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.closed:
		return store.ErrStopped
	case b.Feed.IsUnconfirmed(), b.Feed.Outage.IsDown():
		return errUnavailable
	case time.Since(b.Feed.Resource.Changed) < source.RedefinitionTime:
		return source.ErrRedefined
	case time.Now().Before(b.mu.resume):
		return b.mu.failure
	case c.rv <= b.mu.fullAt && time.Now().Before(b.mu.fullUntil):
		return watchmux.ErrNoRoom
	}
	b.mu.callers = append(b.mu.callers, c)
	if !b.mu.running {
		b.mu.running = true
		b.Spawn(b.run)
	}
	return nil
}

// leave removes a caller. The current step ends if it was the last one.
func (b *Backfiller) leave(c *caller) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.callers = slices.DeleteFunc(b.mu.callers, func(o *caller) bool { return o == c })
	if len(b.mu.callers) == 0 && b.mu.cancel != nil {
		b.mu.cancel(errAbandoned)
	}
}

// run makes steps until there are no callers.
func (b *Backfiller) run() {
	complete := false
	defer func() {
		if !complete { // the collection stops, or a panic
			b.abort(cmp.Or(context.Cause(b.Context), errBroken))
		}
	}()
	select {
	case b.Slots <- struct{}{}:
		defer func() { <-b.Slots }()
	case <-b.Context.Done():
		return
	}
	bisect := false
	for {
		ctx, cancel := context.WithCancelCause(b.Context)
		c := b.next(cancel, bisect)
		if c == nil {
			cancel(nil)
			complete = true
			return
		}
		timer := time.AfterFunc(stepLimit, func() { cancel(errTooSlow) })
		err := b.step(ctx, c)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		timer.Stop()
		cancel(nil)
		b.Results.WithLabelValues(resultOf(err)).Inc()
		bisect = b.settle(c, err) || bisect
	}
}

func (b *Backfiller) abort(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.running = false
	b.failWhere(err, func(*caller) bool { return true })
}

// next returns the caller for whom the next step is: the one with the lowest version, so that one
// step is enough for all. With bisect, that would probably fail, and it is the one in the middle.
// Without callers, next ends the run and returns nil.
func (b *Backfiller) next(cancel context.CancelCauseFunc, bisect bool) *caller {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failWhere(nil, b.isServed)
	if len(b.mu.callers) == 0 {
		b.mu.running, b.mu.cancel = false, nil
		return nil
	}
	b.mu.cancel = cancel
	slices.SortFunc(b.mu.callers, func(a, b *caller) int { return cmp.Compare(a.rv, b.rv) })
	if bisect {
		return b.mu.callers[len(b.mu.callers)/2]
	}
	return b.mu.callers[0]
}

// isServed reports whether the history has what the caller waits for.
func (b *Backfiller) isServed(c *caller) bool {
	mux := b.Store.Mux()
	if mux.Oldest() > c.rv {
		return false
	}
	_, ambiguous := mux.Unresolved(c.rv)
	return !c.states || !ambiguous
}

// failWhere ends the waiting of some callers. The caller holds b.mu.
func (b *Backfiller) failWhere(err error, which func(*caller) bool) {
	b.mu.callers = slices.DeleteFunc(b.mu.callers, func(c *caller) bool {
		if !which(c) {
			return false
		}
		c.done <- err
		return true
	})
}

// step makes the history reach back to the caller's version or, if it does, finds the previous
// states.
func (b *Backfiller) step(ctx context.Context, c *caller) error {
	if b.Store.Mux().Oldest() > c.rv {
		return b.extend(ctx, c.rv)
	}
	return b.resolve(ctx, c.rv)
}

// settle ends the waiting of those for whom the step for c has failed. bisect says that it failed
// because its version is too old.
func (b *Backfiller) settle(c *caller, err error) (bisect bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, errAbandoned): // next looks who is served
		return false
	case source.IsExpired(err), errors.Is(err, watchmux.ErrNoRoom):
		if events, _ := b.Store.Mux().Room(); events > 0 && !source.IsExpired(err) { // otherwise nothing was read
			b.countFull(c.rv, err)
		}
		b.failWhere(err, func(o *caller) bool { return o.rv <= c.rv })
		return true
	case errors.Is(err, errNoStates):
		b.failWhere(err, func(o *caller) bool { return o.rv <= c.rv && o.states })
		return true
	case errors.Is(err, source.ErrNoBookmark), errors.Is(err, store.ErrNotJoined), errors.Is(err, errTooSlow):
		b.mu.resume, b.mu.failure = time.Now().Add(pauseAfter), err
	}
	if errors.Is(err, store.ErrNotJoined) && !b.warned {
		b.warned = true
		b.Feed.Log.Warn("history not extended", "error", err)
	} else {
		b.Feed.Log.Debug("history not extended", "error", err)
	}
	b.failWhere(err, func(*caller) bool { return true })
	return false
}

// countFull counts a step from version rv for whose events there was no room. The caller holds b.mu.
func (b *Backfiller) countFull(rv uint64, err error) {
	if now := time.Now(); !now.Before(b.mu.fullUntil) {
		b.mu.full, b.mu.fullAt, b.mu.fullUntil = 0, 0, now.Add(pauseAfter)
	}
	b.mu.fullAt = max(b.mu.fullAt, rv)
	if b.mu.full++; b.mu.full == fullLimit {
		b.mu.resume, b.mu.failure = b.mu.fullUntil, err
	}
}

// resultOf returns the label of a step's result.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, errAbandoned):
		return "abandoned"
	case source.IsExpired(err), errors.Is(err, errNoStates):
		return "expired"
	case errors.Is(err, watchmux.ErrNoRoom):
		return "full"
	}
	return "failed"
}
