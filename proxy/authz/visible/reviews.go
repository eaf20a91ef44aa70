package visible

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// visibleReviews is how many namespaces of one user are confirmed at a time, allVisibleReviews those of all users. A
	// user's other requests have a place, see userReviews.
	visibleReviews    = review.UserReviews / 2
	allVisibleReviews = 2 * review.UserReviews
	// rechecksPerSecond is how many namespaces of open watches are confirmed in a second, because their time has come.
	// A review takes 0.35 ms of kube-apiserver's processor time, so that these are 7 % of one.
	rechecksPerSecond = 200
	// spreadOver is over what part of their time the reviews of what was confirmed together are spread.
	spreadOver = 4
)

// terms say for how long reviews count.
type terms struct {
	allowed, denied time.Duration
	// paced tells that nobody waits: the reviews of a set are spread over time, and no more than rechecksPerSecond.
	paced bool
}

// termsOf are the terms of a list or of a watch that begins.
func (v *Finder) termsOf(a *authz.Attributes) terms {
	var t terms
	t.allowed, t.denied = v.opts.Authorizer.TTLs()
	if a.Verb == "watch" { // as long as one that is open goes on
		t.allowed = max(t.allowed, v.opts.RecheckPeriod)
	}
	return t
}

// rechecks are the terms of open watches.
func (v *Finder) rechecks() terms {
	return terms{allowed: v.opts.RecheckPeriod, denied: v.opts.RecheckPeriod, paced: true}
}

// atLeast is for how long the reviews of n namespaces count that are made together: not for less than they would take at
// the rate of rechecks, but for no longer than those of a watch.
func (v *Finder) atLeast(ttl time.Duration, n int) time.Duration {
	return max(ttl, min(v.opts.RecheckPeriod, time.Duration(n)*time.Second/rechecksPerSecond))
}

// lifetime is for how long the reviews of some namespaces count: of the last of them spread less.
type lifetime struct{ whole, spread time.Duration }

const forever = 1 << 62

func (t terms) ofAllowed() lifetime {
	l := lifetime{whole: t.allowed}
	if t.paced {
		l.spread = t.allowed / spreadOver
	}
	return l
}

func (t terms) ofRefused(unsettled bool) lifetime {
	if unsettled {
		return lifetime{whole: min(t.denied, refusedAgain)}
	}
	return lifetime{whole: t.denied}
}

// latest is the lifetime after which what was allowed is late.
func (t terms) latest() lifetime { return lifetime{whole: t.allowed} }

// reviewed are namespaces and when they were reviewed.
type reviewed struct {
	names []string       // in order
	at    []atomic.Int64 // when the review was begun, on the decisions' clock
}

func (r *reviewed) add(name string, at int64) {
	r.names = append(r.names, name)
	r.at = append(r.at, atomic.Int64{})
	r.at[len(r.at)-1].Store(at)
}

func (r *reviewed) equal(to *reviewed) bool { return slices.Equal(r.names, to.names) }

// renew takes the times of the same names over, where they are later.
func (r *reviewed) renew(by *reviewed) {
	for i := range r.at {
		r.at[i].Store(max(r.at[i].Load(), by.at[i].Load()))
	}
}

// step is by how much the lifetime of each is shorter than that of the one before.
func (r *reviewed) step(l lifetime) int64 { return int64(l.spread) / int64(max(1, len(r.at))) }

// nextDue is how long it takes until one is due.
func (r *reviewed) nextDue(now int64, l lifetime) time.Duration {
	first, step := now, r.step(l)
	for i := range r.at {
		first = min(first, r.at[i].Load()-step*int64(i))
	}
	return l.whole - time.Duration(now-first)
}

func (r *reviewed) anyDue(now int64, l lifetime) bool { return len(r.at) > 0 && r.nextDue(now, l) <= 0 }

// knownReview is what is known of a candidate.
type knownReview struct {
	allowed, offline bool
	at               int64 // when that was asked; 0 if it never was
	ask              bool  // it is to be asked, and was if asked is set
	asked            bool
}

// recall returns what is known of the candidates of s, and what has to be asked.
func (v *Finder) recall(s, before *Set, t terms) []knownReview {
	known := make([]knownReview, len(s.candidates))
	for i := range known {
		known[i].ask = true
	}
	now := v.opts.Authorizer.Clock()
	if before != nil && !before.Offline {
		recallFrom(s.candidates, known, before.refused, now, t.ofRefused(before.unsettled), false)
		recallFrom(s.candidates, known, before.confirmed, now, t.ofAllowed(), true)
	}
	if s.base != nil && !s.base.Offline {
		recallFrom(s.candidates, known, s.base.refused, now, lifetime{}, false)                // it is asked with the selectors
		recallFrom(s.candidates, known, s.base.confirmed, now, lifetime{whole: forever}, true) // it sees to them
	}
	if t.paced {
		v.postpone(known, now)
	}
	return known
}

// recallFrom takes over what was said of names.
func recallFrom(names []string, known []knownReview, of *reviewed, now int64, l lifetime, allowed bool) {
	next, step := 0, of.step(l)
	for i, name := range names {
		for next < len(of.names) && of.names[next] < name {
			next++
		}
		if next == len(of.names) {
			return
		}
		if of.names[next] != name {
			continue
		}
		if at := of.at[next].Load(); known[i].at <= at {
			known[i] = knownReview{allowed: allowed, at: at, ask: at+int64(l.whole)-step*int64(next) <= now}
		}
	}
}

// postpone leaves of what is only to be confirmed again the later part to another time, if it is too much for now.
func (v *Finder) postpone(known []knownReview, now int64) {
	var due []*knownReview
	for i := range known {
		if known[i].ask && known[i].at > 0 {
			due = append(due, &known[i])
		}
	}
	most := v.pace.take(now, len(due))
	if most == len(due) {
		return
	}
	slices.SortFunc(due, func(a, b *knownReview) int { return cmp.Compare(a.at, b.at) })
	for _, k := range due[most:] {
		k.ask = false
	}
}

// pace lets rechecksPerSecond through. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	left float64 // guarded by mu
	at   int64   // guarded by mu; 0 before the first time
}

// take returns how many of n may be asked now.
func (p *pace) take(now int64, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == 0 {
		p.left = rechecksPerSecond
	} else {
		p.left = min(rechecksPerSecond, p.left+time.Duration(max(0, now-p.at)).Seconds()*rechecksPerSecond)
	}
	p.at = now
	n = min(n, int(p.left))
	p.left -= float64(n)
	return n
}

// turn is one user's. callers is guarded by the mutex of what it is in.
type turn struct {
	places  chan struct{}
	callers int
}

// reviewPlaces are those of reviews, of which each user has visibleReviews at most, in line or taken: however many sets
// somebody has found, others wait for no more of theirs. It is safe for concurrent use.
type reviewPlaces struct {
	all chan struct{}

	mu struct {
		sync.Mutex
		users map[string]*turn // those who have reviews to make
	}
}

func (p *reviewPlaces) init() {
	p.all = make(chan struct{}, allVisibleReviews)
	p.mu.users = make(map[string]*turn)
}

// take waits for a place of a user; leave gives it back.
func (p *reviewPlaces) take(ctx context.Context, user string) (leave func(), err error) {
	p.mu.Lock()
	mine := p.mu.users[user]
	if mine == nil {
		mine = &turn{places: make(chan struct{}, visibleReviews)}
		p.mu.users[user] = mine
	}
	mine.callers++
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if mine.callers--; mine.callers == 0 {
			delete(p.mu.users, user)
		}
	}
	select {
	case mine.places <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
	select {
	case p.all <- struct{}{}:
		return func() { <-p.all; <-mine.places; forget() }, nil
	case <-ctx.Done():
		<-mine.places
		forget()
		return nil, context.Cause(ctx)
	}
}

// confirm asks the upstream about the candidates of s of which it is to be asked, and returns how many reviews that took.
func (v *Finder) confirm(ctx context.Context, s *Set, known []knownReview, made *atomic.Int64) (count float64, err error) {
	reviews, together := errgroup.WithContext(ctx)
	reviews.SetLimit(visibleReviews)
	asked := make([]float64, len(known))
	for i, name := range s.candidates {
		k := &known[i]
		if !k.ask {
			continue
		}
		permissions := s.permissions(name)
		if r, ok := v.remembered(s.user, permissions); ok {
			*k = r
			continue
		}
		if together.Err() != nil {
			break
		}
		reviews.Go(v.panics.Func("background", func() (err error) {
			leave, err := v.places.take(together, s.user.GetName())
			if err != nil {
				return err
			}
			defer leave()
			*k, asked[i], err = v.review(together, s.user, permissions)
			made.Add(int64(math.Ceil(asked[i])))
			return err
		}))
	}
	if err := reviews.Wait(); err != nil {
		return 0, err
	}
	for _, n := range asked {
		count += n
	}
	return count, context.Cause(ctx)
}

// remembered tells what is known of permissions without asking, all of which are needed.
func (v *Finder) remembered(u *authn.User, permissions []authz.Attributes) (k knownReview, ok bool) {
	k = knownReview{allowed: true, asked: true, at: v.opts.Authorizer.Clock()}
	for _, a := range permissions {
		d, at, ok := v.opts.Authorizer.Cached(u, &a)
		if !ok {
			return k, false
		}
		if k.add(d, at); !d.Allowed {
			break
		}
	}
	return k, true
}

// review asks for permissions, all of which are needed, and returns in what number of reviews.
func (v *Finder) review(ctx context.Context, u *authn.User, permissions []authz.Attributes) (k knownReview, reviews float64, err error) {
	k = knownReview{allowed: true, asked: true, at: v.opts.Authorizer.Clock()}
	for _, a := range permissions {
		d, at, ok := v.opts.Authorizer.Cached(u, &a)
		if !ok {
			at = v.opts.Authorizer.Clock()
			d, err = v.opts.Authorizer.Authorize(ctx, u, a)
			reviews += d.Asked
		}
		if err != nil {
			return k, reviews, err
		}
		if k.add(d, at); !d.Allowed {
			break
		}
	}
	return k, reviews, nil
}

// add takes the decision about a further permission into account.
func (k *knownReview) add(d authz.Decision, at int64) {
	k.allowed, k.offline, k.at = d.Allowed, k.offline || d.Offline, min(k.at, at)
}
