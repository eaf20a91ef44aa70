package policy

import (
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/watch"
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

// Mode says how a most-recent read (no resourceVersion) is answered.
type Mode string

const (
	// ModeStrict is linearizable: the upstream is asked after the request arrived.
	// It names the objects of a list and their versions, and what the cache holds of
	// just those is the answer (revalidation); else it answers itself. Identical
	// requests at the same time share what was begun after all of them arrived.
	ModeStrict Mode = "strict"
	// ModeSession answers from the cache once it holds every write that went
	// through this gateway.
	ModeSession Mode = "session"
)

// Consistency chooses the Mode of a read. It must not change while in use.
type Consistency struct {
	// Default is the mode where no rule says another.
	Default Mode
	// MaxStaleness is how long ago the feed's connection may have given a sign
	// of life for a session read; 0 means any time while the feed is up.
	MaxStaleness time.Duration
}

// Offline says who is served while no API server answers, and how old it may be. It must
// not change while in use.
//
// Whoever is not allowed gets what the cache may answer in spite of that: reads of any
// version, or of one that it holds, as long as it is known who asks and what they may do.
// Whoever is allowed is known by what the upstream said last, and reads in session mode,
// too. Strict reads and writes are refused in either case.
type Offline struct {
	// Allow is what counts where no rule says something else.
	Allow bool
	// TTL is how old an answer may be for whoever is allowed.
	TTL time.Duration
}

// Compiled is a compiled Policy. It is immutable: a request keeps the
// one that it began with.
type Compiled struct {
	Policy
	rules rules
	// restricts is set when some request may be rejected by a rule, redacts when some response
	// may be redacted, spends when some rule has a budget or blocks clients.
	restricts, redacts bool
	Spends             bool
}

// Compile compiles p. Budgets that are the same in before keep what their users have spent.
func Compile(p Policy, before *Compiled) *Compiled {
	c := &Compiled{Policy: p}
	c.rules = newRules(p.Rules, Settings{
		Mode: p.Consistency.Default, Offline: choiceOf(p.Offline.Allow), SelfReviews: choiceOf(p.RememberSelfReviews),
		Coalesce: p.Pace.Coalesce, WatchBytesPerSecond: p.Pace.BytesPerSecond,
	})
	if before != nil {
		c.rules.keepBudgets(before.rules.budgets())
	}
	c.redacts = c.rules.any(func(s *Settings) bool { return s.Redacted == Yes })
	c.restricts = c.redacts || c.rules.any(func(s *Settings) bool { return s.ReadOnly == Yes })
	c.Spends = len(c.rules.budgets()) > 0 || c.rules.any(func(s *Settings) bool { return s.Block == Yes })
	return c
}

// Any reports whether is may be true of the settings of some request.
func (c *Compiled) Any(is func(*Settings) bool) bool { return c.rules.any(is) }

// Decide returns what holds for a request of u.
func (c *Compiled) Decide(u user.Info, userAgent string, info *api.RequestInfo) Settings {
	return c.rules.decide(u, userAgent, info)
}

// keepBudgets has budgets that are the same as one of before go on with its users' buckets and
// counts. Of equal ones the first goes on with the first.
func (r *rules) keepBudgets(before []*RuleBudgets) {
	before = slices.Clone(before)
	for _, b := range r.budgets() {
		i := slices.IndexFunc(before, func(old *RuleBudgets) bool {
			return old.Who == b.Who && old.Requests.sameRate(b.Requests) && old.Bytes.sameRate(b.Bytes)
		})
		if i < 0 {
			continue
		}
		old := before[i]
		before = slices.Delete(before, i, i+1)
		if b.Requests != nil {
			b.Requests.Budget = old.Requests.Budget
		}
		if b.Bytes != nil {
			b.Bytes.Budget = old.Bytes.Budget
		}
		b.Refused.n.Store(old.Refused.n.Load())
		b.Stale.n.Store(old.Stale.n.Load())
	}
}

// sameRate reports whether both grant as much, or neither is there.
func (b *Budget) sameRate(other *Budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.PerSecond() == other.PerSecond()
}

// Same reports whether both are charged to the same buckets.
func (b *Budget) Same(other *Budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.Budget == other.Budget
}
