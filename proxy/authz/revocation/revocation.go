package revocation

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Options configure Watches. Zero values select the defaults.
type Options struct {
	// Authorizer and Authenticator review; both are required.
	Authorizer    *authz.Authorizer
	Authenticator *authn.Authenticator
	// RecheckPeriod is how often the permission and the credential of an open watch are reviewed
	// without a change of RBAC objects (default 60 s).
	RecheckPeriod time.Duration
	// Grace is how long a watch continues while its reviews fail (default 5 min). If the upstream
	// is unreachable, the watch gets no events in that time.
	Grace time.Duration
	// Parallelism limits simultaneous reviews (default 16).
	Parallelism int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

const (
	// changeDelay collects changes that come together, so that one round of reviews covers them.
	changeDelay = 150 * time.Millisecond
	// sweepInterval is how often all permissions are reviewed at most while RBAC objects keep
	// changing. With changeDelay and the time of the reviews it stays within the 2 s in which a
	// revocation must end a watch.
	sweepInterval = time.Second
	// tick is how often grants that are due are reviewed, and how soon a failed review is repeated.
	tick = time.Second
	// roundTime limits a round of reviews, so that an upstream that does not respond cannot delay
	// the next round. Grants whose review did not end in time are unknown.
	roundTime = 10 * time.Second
)

// Watches holds the open watches and ends those that lost their permission.
//
// Watches that depend on the same right share a grant, which is reviewed once for all of them. After
// an RBAC change all permissions are reviewed after changeDelay, and once more when the upstream must
// have settled. Besides, each grant is reviewed every RecheckPeriod since it was first needed, which
// spreads the reviews over time.
//
// A grant for several namespaces may take thousands of reviews after a change. No other grant waits
// for them, and neither does a loss that the RBAC objects alone show.
//
// It is safe for concurrent use. Run does the work.
type Watches struct {
	opts    Options
	metrics *metrics
	panics  *contain.Panics
	// narrowed holds a signal to compare the grants for namespaces with the RBAC objects.
	narrowed chan struct{}

	mu struct {
		sync.Mutex
		grants map[grantKey]*grant
		open   int // registrations
		bytes  int // of the grants' attributes
	}
}

// grantKey identifies a right: a permission of a user, one in the namespaces of a set, or a valid
// credential.
type grantKey struct {
	permission authz.Key
	namespaces string // the ID of the set
	credential authn.CredentialKey
}

// grant is a right that open watches depend on. The first group of fields never changes; Watches.mu
// guards the others.
type grant struct {
	key        grantKey
	user       *authn.User
	attributes authz.Attributes // of a permission
	namespaces *visible.Set     // of a permission in several namespaces
	identity   *authn.Identity  // of a credential

	watches map[*Registration]struct{}
	due     time.Time // of the next review
	failing time.Time // since when reviews fail; zero if the last one did not
}

// Registration is an open watch.
type Registration struct {
	watches *Watches
	grants  []*grant
	set     *visible.Set // held until Close, nil for most
	end     func(reason.WatchEnd)
	once    sync.Once
}

// New returns Watches without any.
func New(opts Options) *Watches {
	opts.RecheckPeriod = cmp.Or(opts.RecheckPeriod, defaults.WatchRecheckPeriod)
	opts.Grace = cmp.Or(opts.Grace, defaults.WatchGrace)
	opts.Parallelism = cmp.Or(opts.Parallelism, 16)
	w := &Watches{opts: opts, narrowed: make(chan struct{}, 1), panics: contain.New(opts.Registerer, nil)}
	w.mu.grants = make(map[grantKey]*grant)
	locked := func(n *int) func() int {
		return func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return *n
		}
	}
	w.metrics = newMetrics(opts.Registerer, locked(&w.mu.open), locked(&w.mu.bytes))
	return w
}

// RecheckPeriod returns that of the options.
func (w *Watches) RecheckPeriod() time.Duration { return w.opts.RecheckPeriod }

// Register follows a watch of s that the decision d on attributes allowed. It calls end when the
// watch must end: at most once, from another goroutine, and not after Close returned unless the call
// was in progress. end must not block.
//
// A watch of the gateway's own identity is not followed.
func (w *Watches) Register(s *authn.Subject, attributes authz.Attributes, d authz.Decision, end func(reason.WatchEnd)) *Registration {
	r := &Registration{watches: w, end: end}
	if s.Identity.Source != authn.Gateway {
		w.follow(r, s, d, permissionOf(s.User, attributes))
	}
	return r
}

// RegisterVisible is Register for a watch of the namespaces of a set, which ends when they change.
// The caller holds the set; closing the registration releases it.
func (w *Watches) RegisterVisible(s *authn.Subject, set *visible.Set, end func(reason.WatchEnd)) *Registration {
	r := &Registration{watches: w, set: set, end: end}
	key := grantKey{permission: set.Key(), namespaces: set.Namespaces.ID()}
	w.follow(r, s, set.Decision, grant{key: key, user: s.User, namespaces: set})
	if set.Generation != w.opts.Authorizer.Generation() { // as in follow, without waiting for the reviews of others
		w.signalNarrowed()
	}
	return r
}

func permissionOf(u *authn.User, attributes authz.Attributes) grant {
	return grant{key: grantKey{permission: authz.KeyOf(u, &attributes)}, user: u, attributes: attributes}
}

// follow makes the watch of r depend on right and on the other rights of s.
func (w *Watches) follow(r *Registration, s *authn.Subject, d authz.Decision, right grant) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.open++
	w.enterLocked(r, now, right)
	for _, attributes := range authz.ImpersonationOf(s) {
		w.enterLocked(r, now, permissionOf(s.Identity.User, attributes))
	}
	if key := s.Identity.Credential(); key != (authn.CredentialKey{}) {
		w.enterLocked(r, now, grant{key: grantKey{credential: key}, user: s.Identity.User, identity: s.Identity})
	}
	// A decision made offline is reviewed as soon as the upstream is available. So is one since
	// which a change came: the change may have been followed before this watch was registered.
	if s.Offline || d.Offline || d.Generation != w.opts.Authorizer.Generation() {
		for _, g := range r.grants {
			g.due = now
		}
	}
}

// enterLocked makes r depend on a grant, next unless there is one with the same key.
func (w *Watches) enterLocked(r *Registration, now time.Time, next grant) {
	g := w.mu.grants[next.key]
	if g == nil {
		g = &next
		if g.identity == nil && g.namespaces == nil { // the attributes are parts of a request
			g.attributes = g.attributes.Clone()
			g.key.permission = authz.KeyOf(g.user, &g.attributes)
		}
		g.watches, g.due = make(map[*Registration]struct{}), w.nextReview(g, now)
		w.mu.grants[g.key] = g
		w.mu.bytes += g.attributes.Size()
	}
	g.watches[r] = struct{}{}
	r.grants = append(r.grants, g)
}

// Close stops following a watch that has ended. It may be called more than once, and from end.
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
	if r.set != nil {
		r.set.Release()
	}
}

// nextReview returns when a grant that is good is reviewed again.
func (w *Watches) nextReview(g *grant, now time.Time) time.Time {
	if g.namespaces != nil {
		return g.namespaces.NextReview(now, tick)
	}
	return now.Add(w.opts.RecheckPeriod)
}

// Run follows the open watches until ctx is done. It is called once.
func (w *Watches) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	for _, run := range []func(context.Context){
		func(ctx context.Context) { w.recheck(ctx, func(g *grant) bool { return g.namespaces == nil }) },
		func(ctx context.Context) { w.recheck(ctx, inNamespaces) },
		w.endNarrowed,
	} {
		w.panics.Keep(&background, "background", func() { run(ctx) })
	}
	sweep := time.NewTimer(time.Hour)
	sweep.Stop() // until a change
	defer sweep.Stop()

	var next, last, settled time.Time // next: zero if no sweep is planned
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
			w.signalNarrowed()
			w.review(ctx, w.list(func(g *grant) bool { return g.identity == nil && g.namespaces == nil }), roundTime)
			if settled.After(last) {
				plan(settled)
			}
		}
	}
}

func (w *Watches) signalNarrowed() {
	select {
	case w.narrowed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// endNarrowed ends, after each signal, the watches of a namespace that the RBAC objects no longer
// grant. The grants of the others are due.
func (w *Watches) endNarrowed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.narrowed:
		}
		known := make(map[visible.Rights]bool)
		for _, g := range byTurns(w.list(inNamespaces)) {
			rights := g.namespaces.Rights()
			lost, ok := known[rights]
			if !ok {
				lost = g.namespaces.Lost()
				known[rights] = lost
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

// recheck reviews the grants that are due and selected, apart from the sweeps after a change: a
// revocation does not wait for periodic reviews.
func (w *Watches) recheck(ctx context.Context, selected func(*grant) bool) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now()
			w.review(ctx, w.list(func(g *grant) bool { return selected(g) && !now.Before(g.due) }), tick)
		}
	}
}

func inNamespaces(g *grant) bool { return g.namespaces != nil }

func (w *Watches) list(selected func(*grant) bool) (grants []*grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.mu.grants {
		if selected(g) {
			grants = append(grants, g)
		}
	}
	return grants
}

// review reviews grants, Parallelism at a time, and ends the watches of those that are lost. It
// begins reviews for the time begin and returns when these have ended; the other grants stay due.
// Once a review has taken as long as one may, all grants that are left are unknown.
func (w *Watches) review(ctx context.Context, grants []*grant, begin time.Duration) {
	if len(grants) == 0 {
		return
	}
	began := time.Now()
	last, end := began.Add(begin), began.Add(min(roundTime, w.opts.Authorizer.ReviewTimeout()))
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var reviews errgroup.Group
	reviews.SetLimit(w.opts.Parallelism)
	for _, g := range byTurns(grants) {
		// Compare the time, because the context may end later than the review returns.
		if now := time.Now(); now.After(last) && now.Before(end) {
			break
		}
		reviews.Go(w.panics.Func("background", func() error {
			generation := w.opts.Authorizer.Generation()
			outcome, why := w.reviewOne(limited, g)
			if ctx.Err() == nil {
				w.conclude(g, outcome, why, generation)
			}
			return nil
		}))
	}
	_ = reviews.Wait() // the functions return no errors but panics, which are logged
}

// byTurns orders grants so that users alternate: a user with thousands of grants does not delay
// users with a few.
func byTurns(grants []*grant) []*grant {
	byUser := make(map[authn.Digest][]*grant)
	for _, g := range grants {
		byUser[g.user.Digest()] = append(byUser[g.user.Digest()], g)
	}
	ordered := make([]*grant, 0, len(grants))
	for round := 0; len(byUser) > 0; round++ {
		for user, of := range byUser {
			if ordered = append(ordered, of[round]); round+1 == len(of) {
				delete(byUser, user)
			}
		}
	}
	return ordered
}

func (w *Watches) reviewOne(ctx context.Context, g *grant) (review.Outcome, reason.WatchEnd) {
	if g.namespaces != nil {
		return g.namespaces.Recheck(ctx)
	}
	var allowed, offline bool
	var err error
	lost := reason.PermissionRevoked
	if g.identity != nil {
		lost = reason.CredentialInvalid
		offline, err = w.opts.Authenticator.Revalidate(ctx, g.identity)
		allowed = err == nil
		if errors.Is(err, authn.ErrUnauthenticated) {
			err = nil
		}
	} else {
		var d authz.Decision
		d, err = w.opts.Authorizer.Authorize(ctx, g.user, g.attributes)
		allowed, offline = d.Allowed, d.Offline
	}
	switch {
	case err != nil:
		return review.Unknown, reason.Unconfirmed
	case allowed && offline:
		return review.Offline, reason.NotEnded
	case allowed:
		return review.Good, reason.NotEnded
	}
	return review.Lost, lost
}

// conclude acts on the outcome of a review that began in a generation of the Authorizer.
func (w *Watches) conclude(g *grant, outcome review.Outcome, why reason.WatchEnd, generation uint64) {
	w.metrics.rechecks[outcome].Inc()
	now := time.Now()
	var lost []*Registration

	w.mu.Lock()
	switch {
	case outcome == review.Good:
		g.due, g.failing = w.nextReview(g, now), time.Time{}
		if g.namespaces != nil && generation != w.opts.Authorizer.Generation() { // perhaps by the state before a change
			g.due = now
		}
	case outcome == review.Offline: // reviewed as soon as the upstream is available
		g.due, g.failing = now.Add(tick), time.Time{}
	case outcome == review.Unknown && g.failing.IsZero():
		g.due, g.failing = now.Add(tick), now
	case outcome == review.Unknown && now.Sub(g.failing) < w.opts.Grace:
		g.due = now.Add(tick)
	default:
		for r := range g.watches {
			lost = append(lost, r)
		}
	}
	w.mu.Unlock()

	for _, r := range lost {
		r.once.Do(func() {
			w.metrics.ended[why.String()].Inc()
			r.end(why)
		})
		r.Close()
	}
}
