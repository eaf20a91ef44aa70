package visible

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// userReviews is how many namespaces of one user are confirmed at a time, in all its sets
	// together, allReviews those of all users. The user's other requests keep half of its reviews.
	userReviews = review.UserReviews / 2
	allReviews  = 2 * review.UserReviews
	// rechecksPerSecond is how many namespaces of open watches are confirmed in a second because
	// they are due. A review takes kube-apiserver 0.35 ms of CPU, so that these are 7 % of one CPU.
	rechecksPerSecond = 200
	// spreadOver is the part of their lifetime over which reviews made together are spread.
	spreadOver = 4
	// retryDenied is when a namespace is reviewed again that the RBAC objects grant and the upstream
	// denied soon after a change: its authorizer may lag behind.
	retryDenied = authz.Settle / 2
)

// terms say how long reviews count.
type terms struct {
	allowed, denied time.Duration
	// paced is true if nobody waits: the reviews of a set are spread over time, at most
	// rechecksPerSecond.
	paced bool
}

// termsOf returns the terms of a list or of a watch that begins.
func (f *Finder) termsOf(a *authz.Attributes) (t terms) {
	t.allowed, t.denied = f.opts.Authorizer.TTLs()
	if a.Verb == "watch" { // as long as for an open one
		t.allowed = max(t.allowed, f.opts.RecheckPeriod)
	}
	return t
}

// recheckTerms returns the terms of open watches.
func (f *Finder) recheckTerms() terms {
	return terms{allowed: f.opts.RecheckPeriod, denied: f.opts.RecheckPeriod, paced: true}
}

// atLeast returns how long n reviews made together count: at least as long as they would take at the
// rate of rechecks, but no longer than those of a watch.
func (f *Finder) atLeast(ttl time.Duration, n int) time.Duration {
	return max(ttl, min(f.opts.RecheckPeriod, time.Duration(n)*time.Second/rechecksPerSecond))
}

// lifetime is how long the reviews of some namespaces count; spread is by how much less the last one
// counts.
type lifetime struct{ whole, spread time.Duration }

const forever = 1 << 62

func (t terms) ofAllowed() lifetime {
	l := lifetime{whole: t.allowed}
	if t.paced {
		l.spread = t.allowed / spreadOver
	}
	return l
}

func (t terms) ofDenied(unsettled bool) lifetime {
	if unsettled {
		return lifetime{whole: min(t.denied, retryDenied)}
	}
	return lifetime{whole: t.denied}
}

// reviewed are namespaces and when they were reviewed.
type reviewed struct {
	names []string       // in order
	at    []atomic.Int64 // when the review began, by the Authorizer's clock
}

func (r *reviewed) add(name string, at int64) {
	r.names = append(r.names, name)
	r.at = append(r.at, atomic.Int64{})
	r.at[len(r.at)-1].Store(at)
}

func (r *reviewed) equal(other *reviewed) bool { return slices.Equal(r.names, other.names) }

// renew takes over the times of the same names if they are later.
func (r *reviewed) renew(by *reviewed) {
	for i := range r.at {
		r.at[i].Store(max(r.at[i].Load(), by.at[i].Load()))
	}
}

// step is by how much the lifetime of each is shorter than that of the one before.
func (r *reviewed) step(l lifetime) int64 { return int64(l.spread) / int64(max(1, len(r.at))) }

// nextDue returns the time until one is due.
func (r *reviewed) nextDue(now int64, l lifetime) time.Duration {
	first, step := now, r.step(l)
	for i := range r.at {
		first = min(first, r.at[i].Load()-step*int64(i))
	}
	return l.whole - time.Duration(now-first)
}

func (r *reviewed) anyDue(now int64, l lifetime) bool { return len(r.at) > 0 && r.nextDue(now, l) <= 0 }

// knownReview is what is known about a candidate.
type knownReview struct {
	allowed, offline bool
	at               int64 // when it was reviewed; 0 if it never was
	due              bool  // it needs a review
	reviewed         bool  // it has been reviewed for this set
}

// recall returns what is known about the candidates of s, and which of them are due.
func (f *Finder) recall(s, before *Set, t terms) []knownReview {
	known := make([]knownReview, len(s.candidates))
	for i := range known {
		known[i].due = true
	}
	now := f.opts.Authorizer.Clock()
	recall := func(from *reviewed, l lifetime, allowed bool) {
		next, step := 0, from.step(l)
		for i, name := range s.candidates {
			for next < len(from.names) && from.names[next] < name {
				next++
			}
			if next == len(from.names) {
				return
			}
			if from.names[next] != name {
				continue
			}
			if at := from.at[next].Load(); known[i].at <= at {
				known[i] = knownReview{allowed: allowed, at: at, due: at+int64(l.whole)-step*int64(next) <= now}
			}
		}
	}
	if before != nil && !before.Offline {
		recall(before.denied, t.ofDenied(before.unsettled), false)
		recall(before.confirmed, t.ofAllowed(), true)
	}
	if s.base != nil && !s.base.Offline {
		recall(s.base.denied, lifetime{}, false)                 // reviewed with the selectors
		recall(s.base.confirmed, lifetime{whole: forever}, true) // the base reviews them
	}
	if t.paced {
		f.postpone(known)
	}
	return known
}

// postpone leaves the later part of what is only to be confirmed again to another time, if it is too
// much for now.
func (f *Finder) postpone(known []knownReview) {
	var due []*knownReview
	for i := range known {
		if known[i].due && known[i].at > 0 {
			due = append(due, &known[i])
		}
	}
	now := time.Now()
	n := max(0, min(len(due), int(f.recheck.TokensAt(now))))
	if !f.recheck.AllowN(now, n) {
		n = 0 // another set took them
	}
	slices.SortFunc(due, func(a, b *knownReview) int { return cmp.Compare(a.at, b.at) })
	for _, k := range due[n:] {
		k.due = false
	}
}

// confirm reviews the candidates of s that are due, and returns how many reviews that took.
func (f *Finder) confirm(ctx context.Context, s *Set, known []knownReview, made *atomic.Int64) (count float64, err error) {
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(userReviews)
	reviews, cachedOnly := make([]float64, len(known)), review.WithoutReviews(ctx)
	for i, name := range s.candidates {
		k := &known[i]
		if !k.due {
			continue
		}
		permissions := s.permissions(name)
		if r, _, err := f.review(cachedOnly, s.user, permissions); err == nil {
			*k = r
			continue
		}
		if limited.Err() != nil {
			break
		}
		group.Go(f.panics.Func("background", func() (err error) {
			leave, err := f.queue.Enter(limited, s.user.GetName())
			if err != nil {
				return err
			}
			defer leave()
			*k, reviews[i], err = f.review(limited, s.user, permissions)
			made.Add(int64(math.Ceil(reviews[i])))
			return err
		}))
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for _, n := range reviews {
		count += n
	}
	return count, context.Cause(ctx)
}

// review decides on permissions, all of which are needed, and returns how many reviews that took.
func (f *Finder) review(ctx context.Context, u *authn.User, permissions []authz.Attributes) (k knownReview, reviews float64, err error) {
	authorizer := f.opts.Authorizer
	k = knownReview{allowed: true, reviewed: true, at: authorizer.Clock()}
	for _, a := range permissions {
		d, at, ok := authorizer.Cached(u, &a)
		if !ok {
			if review.Disabled(ctx) {
				return k, 0, review.ErrNoReview
			}
			at = authorizer.Clock()
			d, err = authorizer.Authorize(ctx, u, a)
			reviews += d.Reviews
		}
		if err != nil {
			return k, reviews, err
		}
		k.allowed, k.offline, k.at = d.Allowed, k.offline || d.Offline, min(k.at, at)
		if !d.Allowed {
			break
		}
	}
	return k, reviews, nil
}
