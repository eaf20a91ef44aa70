package visible

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/contain"
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
)

// reviewer has namespaces confirmed. It is safe for concurrent use.
type reviewer struct {
	authorizer *authz.Authorizer
	period     time.Duration            // Options.RecheckPeriod
	queue      review.FairQueue[string] // by user name
	recheck    *rate.Limiter
	panics     *contain.Panics
}

// termsOf returns the terms of a list or of a watch that begins.
func (r *reviewer) termsOf(a *authz.Attributes) (t terms) {
	t.allowed, t.denied = r.authorizer.TTLs()
	if a.Verb == "watch" { // as long as for an open one
		t.allowed = max(t.allowed, r.period)
	}
	return t
}

// recheckTerms returns the terms of open watches.
func (r *reviewer) recheckTerms() terms {
	return terms{allowed: r.period, denied: r.period, paced: true}
}

// atLeast returns how long n reviews made together count: at least as long as they would take at the
// rate of rechecks, but no longer than those of a watch.
func (r *reviewer) atLeast(ttl time.Duration, n int) time.Duration {
	return max(ttl, min(r.period, time.Duration(n)*time.Second/rechecksPerSecond))
}

// recall returns what is known about the candidates of s, and which of them are due.
func (r *reviewer) recall(s, before *Set, t terms) []knownReview {
	known := make([]knownReview, len(s.candidates))
	for i := range known {
		known[i].due = true
	}
	now := r.authorizer.Clock()
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
		r.postpone(known)
	}
	return known
}

// postpone defers the later part of the confirmations that are due again, if there are too many for
// now.
func (r *reviewer) postpone(known []knownReview) {
	var due []*knownReview
	for i := range known {
		if known[i].due && known[i].at > 0 {
			due = append(due, &known[i])
		}
	}
	now := time.Now()
	n := max(0, min(len(due), int(r.recheck.TokensAt(now))))
	if !r.recheck.AllowN(now, n) {
		n = 0 // another set took them
	}
	slices.SortFunc(due, func(a, b *knownReview) int { return cmp.Compare(a.at, b.at) })
	for _, k := range due[n:] {
		k.due = false
	}
}

// confirm reviews the candidates of s that are due, and returns how many reviews that took.
func (r *reviewer) confirm(ctx context.Context, s *Set, known []knownReview, made *atomic.Int64) (count float64, err error) {
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(userReviews)
	reviews, cachedOnly := make([]float64, len(known)), review.WithoutReviews(ctx)
	for i, name := range s.candidates {
		k := &known[i]
		if !k.due {
			continue
		}
		permissions := s.permissions(name)
		if cached, _, err := r.review(cachedOnly, s.user, permissions); err == nil {
			*k = cached
			continue
		}
		if limited.Err() != nil {
			break
		}
		group.Go(r.panics.Func("background", func() (err error) {
			leave, err := r.queue.Enter(limited, s.user.GetName())
			if err != nil {
				return err
			}
			defer leave()
			*k, reviews[i], err = r.review(limited, s.user, permissions)
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
func (r *reviewer) review(ctx context.Context, u *authn.User, permissions []authz.Attributes) (k knownReview, reviews float64, err error) {
	authorizer := r.authorizer
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
