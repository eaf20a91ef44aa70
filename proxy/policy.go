package proxy

import (
	"slices"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/proxy/usage"
	"github.com/kubeweir/kubeweir/reason"
)

// Policy is the part of a Gateway's settings that can be replaced while it runs, see SetPolicy.
type Policy struct {
	Consistency Consistency
	// Pace is the pace of watches where no rule says another.
	Pace watch.Pace
	// Offline selects the clients that are served while no API server responds. Default: none.
	Offline Offline
	// RememberSelfReviews serves self-reviews (SelfSubjectAccessReview and the like) from the
	// upstream's recent responses to the same user.
	RememberSelfReviews bool
	// Rules override the settings above for the requests that they match. They are tried in
	// order: the first rule that matches and has a setting decides that setting.
	Rules  []Rule
	Limits Limits
}

// Limits bound what a Gateway does at the same time.
type Limits struct {
	// InFlight is the most requests at a time that are not long-running,
	// LongRunning the most watches, log follows, upgrades; a user gets at most three
	// quarters of them. Of requests whose sender is still to be found out there are as
	// many as InFlight besides. 0 means no limit.
	InFlight, LongRunning int64
	// Resumed is the most watches at a time that go on at the upstream from a
	// version older than the cache's history; one more is told to list again. A user
	// gets at most three quarters of them, too.
	Resumed int64
	// CollapsedBytes is the largest answer that is shared between callers; those that
	// are shared at a time are four times as large together.
	CollapsedBytes int64
}

// policy is a compiled Policy. It is immutable: a request keeps the
// one that it began with.
type policy struct {
	Policy
	rules rules
	// restricts is set when some request may be rejected by a rule, redacts when some response
	// may be redacted, spends when some rule has a budget or blocks clients.
	restricts, redacts, spends bool
}

// newPolicy compiles p. Budgets that are the same in before keep what their users have spent.
func newPolicy(p Policy, before *policy) *policy {
	c := &policy{Policy: p}
	c.rules = newRules(p.Rules, Settings{
		Mode: p.Consistency.Default, Offline: choiceOf(p.Offline.Allow), SelfReviews: choiceOf(p.RememberSelfReviews),
		Coalesce: p.Pace.Coalesce, WatchBytesPerSecond: p.Pace.BytesPerSecond,
	})
	if before != nil {
		c.rules.keepBudgets(before.rules.budgets())
	}
	c.redacts = c.rules.any(func(s *Settings) bool { return s.Redacted == Yes })
	c.restricts = c.redacts || c.rules.any(func(s *Settings) bool { return s.ReadOnly == Yes })
	c.spends = len(c.rules.budgets()) > 0 || c.rules.any(func(s *Settings) bool { return s.Block == Yes })
	return c
}

// SetPolicy replaces the policy. Requests that arrive from then on are served by p. Streams
// that p would serve in another way, or not at all, end within two seconds (usagePeriod), so
// that their clients ask again. Callers must not overlap.
func (g *Gateway) SetPolicy(p Policy) {
	next := newPolicy(p, g.policy.Load())
	if next.rules.any(func(s *Settings) bool { return s.Mode == ModeSession }) {
		g.session.startObserving(g.policy.Load() != nil) // before a request can be in session mode
	}
	g.budgetMetrics.show(next.rules.budgets(), g.budgets())
	g.inFlight.SetLimit(p.Limits.InFlight)
	g.unidentified.SetLimit(p.Limits.InFlight)
	g.longRunning.SetLimit(p.Limits.LongRunning)
	g.resumed.SetLimit(p.Limits.Resumed)
	g.collapser.maxBody.Store(p.Limits.CollapsedBytes)
	g.policy.Store(next)
}

// budgets are those of the rules in force.
func (g *Gateway) budgets() []*ruleBudgets {
	if p := g.policy.Load(); p != nil {
		return p.rules.budgets()
	}
	return nil
}

// outdated returns a function that reports whether the policy in force would now reject the
// stream of x or serve it differently. The function is not safe for concurrent use.
func (g *Gateway) outdated(x *exchange) func() bool {
	seen := x.policy
	return func() bool {
		now := g.policy.Load()
		if now == seen {
			return false
		}
		seen = now
		return x.servedOtherwise(now)
	}
}

// servedOtherwise reports whether p rejects the request of a stream, or changes what the stream
// sends.
func (x *exchange) servedOtherwise(p *policy) bool {
	then := *x
	then.policy, then.redacted = p, false
	then.settings = p.rules.decide(x.subject.User, x.request.Header.Get("User-Agent"), x.info)
	var blocked bool
	if then.spending, blocked = then.spendingOf(); blocked {
		return true
	}
	if _, rejected := then.restriction(); rejected != "" {
		return true
	}
	a, b := &x.settings, &then.settings
	return x.redacted != then.redacted || a.DropManagedFields != b.DropManagedFields || a.VisibleLists != b.VisibleLists ||
		a.Coalesce != b.Coalesce || a.WatchBytesPerSecond != b.WatchBytesPerSecond ||
		!x.spending.bytes.same(then.spending.bytes)
}

// endStreams ends streams whose user agent is blocked, or that the policy in force would reject
// or serve differently.
func (g *Gateway) endStreams() {
	g.usage.End(func(s *usage.Stream) bool { return s.Outdated() || g.Blocked.find(s.UserAgent) != nil })
}

// whyEnded returns the reason for which endStreams ends the watch of x.
func (g *Gateway) whyEnded(x *exchange) reason.WatchEnd {
	if g.Blocked.find(x.request.Header.Get("User-Agent")) != nil {
		return reason.WatchBlocked
	}
	return reason.PolicyChanged
}

// keepBudgets has budgets that are the same as one of before go on with its users' buckets and
// counts. Of equal ones the first goes on with the first.
func (r *rules) keepBudgets(before []*ruleBudgets) {
	before = slices.Clone(before)
	for _, b := range r.budgets() {
		i := slices.IndexFunc(before, func(old *ruleBudgets) bool {
			return old.who == b.who && old.requests.sameRate(b.requests) && old.bytes.sameRate(b.bytes)
		})
		if i < 0 {
			continue
		}
		old := before[i]
		before = slices.Delete(before, i, i+1)
		if b.requests != nil {
			b.requests.Budget = old.requests.Budget
		}
		if b.bytes != nil {
			b.bytes.Budget = old.bytes.Budget
		}
		b.refused.n.Store(old.refused.n.Load())
		b.stale.n.Store(old.stale.n.Load())
	}
}

// sameRate reports whether both grant as much, or neither is there.
func (b *budget) sameRate(other *budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.PerSecond() == other.PerSecond()
}

// same reports whether both are charged to the same buckets.
func (b *budget) same(other *budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.Budget == other.Budget
}
