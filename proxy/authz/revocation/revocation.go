package revocation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/reason"
)

// Options say how closely open watches are followed. Zero values stand
// for the defaults.
type Options struct {
	// Authorizer and Authenticator review; both are required.
	Authorizer    *authz.Authorizer
	Authenticator *authn.Authenticator
	// RecheckPeriod is how often the permission and the credential of an open
	// watch are reviewed when no RBAC change was seen (default 60 s).
	RecheckPeriod time.Duration
	// Grace is how long a watch goes on while its review fails for want of an
	// answer (default 5 min). Nothing new reaches it in that time if the upstream
	// is gone.
	Grace time.Duration
	// Parallelism bounds simultaneous reviews (default 16).
	Parallelism int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	review.SetDefault(&o.RecheckPeriod, defaults.WatchRecheckPeriod)
	review.SetDefault(&o.Grace, defaults.WatchGrace)
	review.SetDefault(&o.Parallelism, 16)
}

const (
	// changeDelay lets changes that come together be followed by one review.
	changeDelay = 150 * time.Millisecond
	// sweepInterval bounds how often all permissions are reviewed while RBAC
	// objects keep changing. With changeDelay and the reviews' own time it keeps
	// within the 2 s in which a revocation must end a watch.
	sweepInterval = time.Second
	// tick is how often the watches that are due are looked for, and how soon a
	// failed review is repeated.
	tick = time.Second
	// reviewTime bounds one round of reviews, so that an upstream that does not
	// answer cannot hold up the next. What was not reviewed in it is unknown.
	reviewTime = 10 * time.Second
)

// Watches holds the open watches and ends those that lost their permission.
//
// Watches that depend on the same right are one grant, reviewed once for all.
// After an RBAC change all permissions are reviewed, once after changeDelay and
// once more when the upstream must have settled; besides, each grant every
// RecheckPeriod since it was first needed, which spreads the reviews over time.
//
// One in several namespaces may take thousands of reviews after a change, for which no
// other waits, nor what the change has taken away: the RBAC objects alone tell that.
//
// It is safe for concurrent use. Run does the work.
type Watches struct {
	opts     Options
	metrics  *watchesMetrics
	panics   *contain.Panics
	narrower chan struct{} // holds one signal

	mu struct {
		sync.Mutex
		grants map[grantKey]*grant // guarded by mu, as are the grants' fields
		open   int                 // registrations
		bytes  int                 // of the grants' attributes
	}
}

// grantKey is a right: a permission of a user, one in the namespaces of a set, or a good
// credential.
type grantKey struct {
	permission authz.Key
	namespaces string // the ID of the set
	credential authn.CredentialKey
}

// grant is a right that open watches depend on. key, user, attributes, visible, identity never
// change; the rest is guarded by Watches.mu.
type grant struct {
	key        grantKey
	user       *authn.User
	attributes authz.Attributes // for a permission: of what
	visible    *visible.Set     // for one in several namespaces
	identity   *authn.Identity  // for a credential: whose

	watches map[*Registration]struct{}
	due     time.Time // of the next review
	narrow  bool      // the RBAC objects alone are to tell of it before
	failing time.Time // since when reviews fail; zero while they do not
}

// Registration is an open watch.
type Registration struct {
	watches *Watches
	grants  []*grant
	visible *visible.Set // held until Close, nil for most
	end     func(reason.WatchEnd)
	once    sync.Once
}

// New returns an empty registry.
func New(opts Options) *Watches {
	opts.setDefaults()
	w := &Watches{opts: opts, narrower: make(chan struct{}, 1)}
	w.mu.grants = make(map[grantKey]*grant)
	w.panics = contain.New(opts.Registerer, nil)
	w.metrics = newWatchesMetrics(opts.Registerer, w.count, w.bytes)
	return w
}

// RecheckPeriod is that of the options.
func (w *Watches) RecheckPeriod() time.Duration { return w.opts.RecheckPeriod }

func (w *Watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.open
}

func (w *Watches) bytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.bytes
}

// Register follows a watch of s that the decision d on attributes allowed. end
// is called when it must end: at most once, from another goroutine, and not
// after Close returned unless it was under way. It must not block.
//
// A watch of the gateway's own identity is not followed.
func (w *Watches) Register(s *authn.Subject, attributes authz.Attributes, d authz.Decision, end func(reason.WatchEnd)) *Registration {
	r := &Registration{watches: w, end: end}
	if s.Identity.Source == authn.Gateway {
		return r
	}
	return w.follow(r, s, d, grant{key: grantKey{permission: authz.KeyOf(s.User, &attributes)}, user: s.User, attributes: attributes})
}

// RegisterVisible is Register for a watch of the namespaces of a set, which ends when they become others. The caller has
// held the set, which is released with the registration.
func (w *Watches) RegisterVisible(s *authn.Subject, set *visible.Set, end func(reason.WatchEnd)) *Registration {
	r := &Registration{watches: w, visible: set, end: end}
	key := grantKey{permission: set.Key(), namespaces: set.Namespaces.ID()}
	w.follow(r, s, set.Decision, grant{key: key, user: s.User, visible: set})
	if set.Generation != w.opts.Authorizer.Generation() { // as in follow, but this must not wait for others' reviews
		w.mu.Lock()
		if g := w.mu.grants[key]; g != nil {
			g.narrow = true
		}
		w.mu.Unlock()
		w.signalNarrower()
	}
	return r
}

func (w *Watches) signalNarrower() {
	select {
	case w.narrower <- struct{}{}:
	default: // a signal is waiting already
	}
}

// follow begins to follow the watch of r, which depends on the right to what it reads and
// on the others of s.
func (w *Watches) follow(r *Registration, s *authn.Subject, d authz.Decision, right grant) *Registration {
	now := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.open++
	w.enter(r, now, right)
	for _, needed := range authz.Impersonation(s) {
		w.add(r, now, s.Identity.User, needed)
	}
	if s.Identity.Credential() != (authn.CredentialKey{}) {
		w.enter(r, now, grant{key: grantKey{credential: s.Identity.Credential()}, user: s.Identity.User, identity: s.Identity})
	}
	if s.Offline || d.Offline {
		// Asked about again as soon as the upstream answers.
		for _, g := range r.grants {
			g.due = now
		}
	}
	if d.Generation != w.opts.Authorizer.Generation() {
		// A change came between the decision and now, and may have been followed
		// before this watch was there to be asked about.
		for _, g := range r.grants {
			g.due = now
		}
	}
	return r
}

func (w *Watches) add(r *Registration, now time.Time, u *authn.User, attributes authz.Attributes) {
	w.enter(r, now, grant{key: grantKey{permission: authz.KeyOf(u, &attributes)}, user: u, attributes: attributes})
}

// enter makes r depend on a grant, next unless there is one like it. The caller holds
// mu.
func (w *Watches) enter(r *Registration, now time.Time, next grant) {
	g := w.mu.grants[next.key]
	if g == nil {
		fresh := next
		g = &fresh
		if g.identity == nil && g.visible == nil { // the attributes are parts of a request
			g.attributes = g.attributes.Clone()
			g.key.permission = authz.KeyOf(g.user, &g.attributes)
		}
		g.watches, g.due = make(map[*Registration]struct{}), w.next(g, now)
		w.mu.grants[g.key] = g
		w.mu.bytes += g.attributes.Size()
	}
	g.watches[r] = struct{}{}
	r.grants = append(r.grants, g)
}

// Close ends the following of a watch that is over. It may be called more than
// once, and from within end.
func (r *Registration) Close() {
	w := r.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(r.grants) == 0 {
		return
	}
	for _, g := range r.grants {
		delete(g.watches, r)
		if len(g.watches) == 0 {
			delete(w.mu.grants, g.key)
			w.mu.bytes -= g.attributes.Size()
		}
	}
	r.grants = nil
	w.mu.open--
	if r.visible != nil {
		r.visible.Release()
	}
}

// next is when a grant that is good is reviewed again.
func (w *Watches) next(g *grant, now time.Time) time.Time {
	if g.visible != nil {
		return g.visible.NextReview(now, tick)
	}
	return now.Add(w.opts.RecheckPeriod)
}

// Run follows the open watches until ctx is done. It is called once.
func (w *Watches) Run(ctx context.Context) {
	var rechecks sync.WaitGroup
	w.panics.Keep(&rechecks, "background", func() { w.recheck(ctx, func(g *grant) bool { return g.visible == nil }) })
	w.panics.Keep(&rechecks, "background", func() { w.recheck(ctx, inNamespaces) })
	w.panics.Keep(&rechecks, "background", func() { w.narrow(ctx) })
	defer rechecks.Wait()
	sweep := time.NewTimer(time.Hour)
	sweep.Stop() // until a change
	defer sweep.Stop()

	var next, last, settled time.Time // next: zero when no sweep is planned
	plan := func(at time.Time) {
		if earliest := last.Add(sweepInterval); at.Before(earliest) {
			at = earliest
		}
		if next.IsZero() || at.Before(next) {
			next = at
			sweep.Reset(time.Until(at))
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.opts.Authorizer.Changed():
			now := time.Now()
			settled = now.Add(authz.Settle)
			plan(now.Add(changeDelay))
		case <-sweep.C:
			next, last = time.Time{}, time.Now()
			w.mu.Lock()
			for _, g := range w.mu.grants {
				g.narrow = inNamespaces(g)
			}
			w.mu.Unlock()
			w.signalNarrower()
			w.review(ctx, w.permissions(), reviewTime)
			if settled.After(last) {
				plan(settled)
			}
		}
	}
}

// narrow ends, after each signal, those of the watches it is to look at that show a namespace which the RBAC objects do not
// grant any more. The others are due.
func (w *Watches) narrow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.narrower:
		}
		known := make(map[visible.Rights]bool)
		grants := w.list(func(g *grant) bool {
			wanted := g.narrow
			g.narrow = false
			return wanted
		})
		for _, g := range inTurn(grants) {
			key := g.visible.Rights()
			lost, ok := known[key]
			if !ok {
				lost = g.visible.Lost()
				known[key] = lost
			}
			if lost {
				w.conclude(g, review.Lost, reason.NamespacesChanged, w.opts.Authorizer.Generation())
				continue
			}
			w.mu.Lock()
			g.due = time.Now()
			w.mu.Unlock()
		}
	}
}

// recheck reviews the grants that are due, of those that are wanted, apart from those that a
// change may have taken away: a revocation does not wait for what comes round anyway.
func (w *Watches) recheck(ctx context.Context, want func(*grant) bool) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now()
			w.review(ctx, w.list(func(g *grant) bool { return want(g) && !now.Before(g.due) }), tick)
		}
	}
}

// permissions lists the grants that are reviewed after an RBAC change.
func (w *Watches) permissions() []*grant {
	return w.list(func(g *grant) bool { return g.identity == nil && g.visible == nil })
}

// inNamespaces reports whether a grant is one in several namespaces.
func inNamespaces(g *grant) bool { return g.visible != nil }

func (w *Watches) list(want func(*grant) bool) (grants []*grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.mu.grants {
		if want(g) {
			grants = append(grants, g)
		}
	}
	return grants
}

// review reviews grants, Parallelism at a time, and ends the watches of those
// that are lost. It returns when all are done that could be begun within the time
// for that; the others stay due. Once the upstream has left a review unanswered for as
// long as one may take, all that are left are unknown.
func (w *Watches) review(ctx context.Context, grants []*grant, begin time.Duration) {
	if len(grants) == 0 {
		return
	}
	began := time.Now()
	last, end := began.Add(begin), began.Add(min(reviewTime, w.opts.Authorizer.ReviewTimeout()))
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var reviews errgroup.Group
	reviews.SetLimit(w.opts.Parallelism)
	for _, g := range inTurn(grants) {
		// By the clock: the context may learn later than a review that its time is over.
		if now := time.Now(); now.After(last) && now.Before(end) {
			break
		}
		reviews.Go(w.panics.Func("background", func() error {
			generation := w.opts.Authorizer.Generation()
			result, reason := w.reviewOne(limited, g)
			if ctx.Err() == nil {
				w.conclude(g, result, reason, generation)
			}
			return nil
		}))
	}
	_ = reviews.Wait() // its functions return no error but panics, and those are logged
}

// inTurn orders grants so that the users take turns: one who has thousands delays
// nobody who has a few.
func inTurn(grants []*grant) []*grant {
	byUser := make(map[authn.Digest][]*grant)
	var users []authn.Digest
	for _, g := range grants {
		of, known := byUser[g.user.Digest()]
		if !known {
			users = append(users, g.user.Digest())
		}
		byUser[g.user.Digest()] = append(of, g)
	}
	ordered := make([]*grant, 0, len(grants))
	for turn := 0; len(users) > 0; turn++ {
		left := users[:0]
		for _, u := range users {
			of := byUser[u]
			ordered = append(ordered, of[turn])
			if turn+1 < len(of) {
				left = append(left, u)
			}
		}
		users = left
	}
	return ordered
}

func (w *Watches) reviewOne(ctx context.Context, g *grant) (review.Outcome, reason.WatchEnd) {
	if g.identity != nil {
		offline, err := w.opts.Authenticator.Revalidate(ctx, g.identity)
		switch {
		case err == nil && offline:
			return review.Offline, reason.NotEnded
		case err == nil:
			return review.Good, reason.NotEnded
		case errors.Is(err, authn.ErrUnauthenticated):
			return review.Lost, reason.CredentialInvalid
		}
		return review.Unknown, reason.Unconfirmed
	}
	if g.visible != nil {
		return g.visible.Recheck(ctx)
	}
	d, err := w.opts.Authorizer.Authorize(ctx, g.user, g.attributes)
	switch {
	case err != nil:
		return review.Unknown, reason.Unconfirmed
	case d.Allowed && d.Offline:
		return review.Offline, reason.NotEnded
	case d.Allowed:
		return review.Good, reason.NotEnded
	}
	return review.Lost, reason.PermissionRevoked
}

// conclude acts on the outcome of a review that was begun in a generation of the authz.Authorizer.
func (w *Watches) conclude(g *grant, result review.Outcome, why reason.WatchEnd, generation uint64) {
	w.metrics.rechecks[result].Inc()
	now := time.Now()
	var lost []*Registration

	w.mu.Lock()
	switch {
	case result == review.Good:
		g.due, g.failing = w.next(g, now), time.Time{}
		if g.visible != nil && generation != w.opts.Authorizer.Generation() { // it may tell of the state before a change
			g.due = now
		}
	case result == review.Offline: // to be asked about as soon as the upstream answers
		g.due, g.failing = now.Add(tick), time.Time{}
	case result == review.Unknown && g.failing.IsZero():
		g.due, g.failing = now.Add(tick), now
	case result == review.Unknown && now.Sub(g.failing) < w.opts.Grace:
		g.due = now.Add(tick)
	default:
		for r := range g.watches {
			lost = append(lost, r)
		}
	}
	w.mu.Unlock()

	for _, r := range lost {
		r.once.Do(func() {
			w.metrics.ended[why].Inc()
			r.end(why)
		})
		r.Close()
	}
}
