package policy

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Budgets bound what the users that a rule matches may cause upstream, each by itself. Who
// sends a request pays, as whomever they act; what the cache answers is free. A request is
// granted while something is left, and pays a request in advance. What it has caused is known
// later: bytes are a debt then.
//
// Over the budget nothing is asked of the upstream on behalf of the user, no review either. So
// a permission that is not remembered is unknown then: that is neither yes nor no, but 429.

// OverBudget says what becomes of a request that would cause more than its sender may.
type OverBudget string

const (
	// OverBudgetRefuse refuses it with 429.
	OverBudgetRefuse OverBudget = "refuse"
	// OverBudgetCached answers a most-recent read with what the cache holds, and how old that
	// is, and refuses all else.
	OverBudgetCached OverBudget = "cached"
)

// Budget is one of a rule.
type Budget struct {
	*usage.Budget
	Rule    *RuleBudgets
	Setting string // upstreamRequestsPerSecond
}

// RuleBudgets are those of a rule, and what they have led to.
type RuleBudgets struct {
	Name            string // rules[2]
	Who             string
	Requests, Bytes *Budget // nil without one
	Refused, Stale  budgetAnswers
}

// budgetAnswers counts answers of a kind.
type budgetAnswers struct {
	n       atomic.Int64
	counter prometheus.Counter
}

func (a *budgetAnswers) Inc() {
	a.n.Add(1)
	a.counter.Inc()
}

// BudgetState is what a rule's budgets are, and have led to.
type BudgetState struct {
	// Rule is its path in the configuration, Who whom it matches.
	Rule, Who string
	// RequestsPerSecond and BytesPerSecond are 0 without such a budget.
	RequestsPerSecond, BytesPerSecond int64
	// Refused and AnsweredStale are how many requests were, because of it.
	Refused, AnsweredStale int64
	// Users is how many users have something to pay, at most.
	Users int
}

// newBudgets makes those of a rule; nil if it has none.
func newBudgets(i int, r *Rule) *RuleBudgets {
	if r.Says.UpstreamRequestsPerSecond == 0 && r.Says.UpstreamBytesPerSecond == 0 {
		return nil
	}
	b := &RuleBudgets{Name: ruleName(i), Who: r.Match.String()}
	if n := r.Says.UpstreamRequestsPerSecond; n > 0 {
		b.Requests = &Budget{usage.NewBudget(n), b, "upstreamRequestsPerSecond"}
	}
	if n := r.Says.UpstreamBytesPerSecond; n > 0 {
		b.Bytes = &Budget{usage.NewBudget(n), b, "upstreamBytesPerSecond"}
	}
	return b
}

// String says whom it matches.
func (m *Match) String() string {
	var parts []string
	for _, list := range []struct {
		name  string
		items []string
	}{{"users", m.Users}, {"groups", m.Groups}, {"userAgents", m.UserAgents}, {"resources", m.Resources}} {
		if len(list.items) > 0 {
			parts = append(parts, list.name+": "+strings.Join(list.items, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// State is what the budgets are, and have led to.
func (b *RuleBudgets) State() BudgetState {
	state := BudgetState{Rule: b.Name, Who: b.Who, Refused: b.Refused.n.Load(), AnsweredStale: b.Stale.n.Load()}
	if b.Requests != nil {
		state.RequestsPerSecond, state.Users = b.Requests.PerSecond(), b.Requests.Users()
	}
	if b.Bytes != nil {
		state.BytesPerSecond, state.Users = b.Bytes.PerSecond(), max(state.Users, b.Bytes.Users())
	}
	return state
}

// Budgets are those of the rules, in their order.
func (c *Compiled) Budgets() []*RuleBudgets {
	if c == nil {
		return nil
	}
	return c.rules.budgets()
}

func (r *rules) budgets() (all []*RuleBudgets) {
	for i := range r.list {
		if b := r.list[i].budgets; b != nil {
			all = append(all, b)
		}
	}
	return all
}

// BudgetMetrics shows what budgets lead to.
type BudgetMetrics struct{ Answers *prometheus.CounterVec }

// NewBudgetMetrics registers the metrics of what budgets returns.
func NewBudgetMetrics(registerer prometheus.Registerer, budgets func() []*RuleBudgets) *BudgetMetrics {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_budget_answers_total",
		Help: "Requests of users who had exhausted an upstream budget, by the rule that has the budget and the outcome: refused (rejected with 429), cached (served from the cache, with the age of the response).",
	}, []string{"rule", "answer"})
	m := &BudgetMetrics{answers}
	if registerer == nil {
		return m
	}
	registerer.MustRegister(answers, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_budget_users",
		Help: "Users with a bucket in an upstream budget, over all rules. A budget has at most 4,096 buckets; further users share buckets, each with few others.",
	}, func() (n float64) {
		for _, rule := range budgets() {
			for _, b := range []*Budget{rule.Requests, rule.Bytes} {
				if b != nil {
					n += float64(b.Users())
				}
			}
		}
		return n
	}))
	return m
}

// Show has the counters of rules that have budgets, and those alone. Those of a rule that stays in
// its place go on.
func (m *BudgetMetrics) Show(budgets, before []*RuleBudgets) {
	for _, old := range before {
		if !slices.ContainsFunc(budgets, func(b *RuleBudgets) bool { return b.Name == old.Name && b.Who == old.Who }) {
			m.Answers.DeletePartialMatch(prometheus.Labels{"rule": old.Name})
		}
	}
	for _, b := range budgets {
		b.Refused.counter = m.Answers.WithLabelValues(b.Name, "refused")
		b.Stale.counter = m.Answers.WithLabelValues(b.Name, "cached")
	}
}

// Spending is what a request may cause, by the budgets of its sender, who is User.
type Spending struct {
	User            string
	requests, bytes *Budget // nil without one
	Cached          bool    // over them a most-recent read is answered from the cache
	granted         bool    // it may go on, whatever becomes of the budgets
	// Exceeded is the budget that is spent, Wait in which time something will be left.
	Exceeded *Budget
	Wait     time.Duration
}

// SpendingOf finds the budgets of the sender of a request, and whether a rule blocks it.
func (c *Compiled) SpendingOf(sender user.Info, r *api.Request) (s Spending, blocked bool) {
	info := r.Info()
	if !r.PlainPath() {
		info = nil // others may read the path as one of any resource
	}
	says := c.rules.decideSender(sender, r.Header.Get("User-Agent"), info)
	return Spending{
		User: sender.GetName(), requests: says.requests, bytes: says.bytes, Cached: says.OverBudget == OverBudgetCached,
	}, says.Block == Yes
}

// Each calls visit for each budget of the sender, with the time until something is left of it.
func (s *Spending) Each(visit func(b *Budget, wait time.Duration)) {
	for _, b := range []*Budget{s.bytes, s.requests} {
		if b != nil {
			visit(b, b.Wait(s.User))
		}
	}
}

// SameBytes reports whether both charge bytes to the same buckets.
func (s *Spending) SameBytes(other *Spending) bool { return s.bytes.Same(other.bytes) }

// Exceeds reports whether nothing is left of a budget; otherwise requests are paid for.
func (s *Spending) Exceeds(requests float64) bool {
	for _, b := range [...]struct {
		*Budget
		amount float64
	}{{s.bytes, 0}, {s.requests, requests}} {
		if b.Budget == nil {
			continue
		}
		if wait := b.Take(s.User, b.amount); wait > 0 {
			s.Exceeded, s.Wait = b.Budget, wait
			return true
		}
	}
	return false
}

// MayAsk reports whether the upstream may be asked something on behalf of the request, and pays
// for the first.
func (s *Spending) MayAsk() bool {
	if s.granted || s.requests == nil && s.bytes == nil {
		return true
	}
	s.granted = !s.Exceeds(1)
	return s.granted
}

// Settle pays for what the request has caused, but for what was paid in advance.
func (s *Spending) Settle(requests, bytes float64) {
	if s.requests != nil {
		paid := 0.0
		if s.granted {
			paid = 1
		}
		if more := requests - paid; more != 0 {
			s.requests.Charge(s.User, more)
		}
	}
	s.SettleBytes(bytes)
}

// SettleBytes pays for bytes.
func (s *Spending) SettleBytes(n float64) {
	if b := s.bytes; b != nil && n > 0 {
		b.Charge(s.User, n)
	}
}

// chargeStep is how much of an answer is passed on before it is charged.
const chargeStep = 256 << 10

// ChargeBody has a forwarded answer charged while it is passed on, for it may take long; nil where
// nobody pays or there is all of it.
func (s *Spending) ChargeBody(resp *api.Response) *ChargedBody {
	if s.bytes == nil || resp.BodyTo == nil {
		return nil
	}
	b := &ChargedBody{from: resp.BodyTo, charge: s.SettleBytes}
	resp.BodyTo = b
	return b
}

// ChargedBody is a body of which each step is charged.
type ChargedBody struct {
	from   io.WriterTo
	charge func(bytes float64)
	to     io.Writer
	// written is how much of it there was so far, charged what of that is paid.
	written, charged int64
}

// Paid is how much of it was charged.
func (b *ChargedBody) Paid() int64 {
	if b == nil {
		return 0
	}
	return b.charged
}

// WriteTo implements io.WriterTo.
func (b *ChargedBody) WriteTo(w io.Writer) (int64, error) {
	b.to = w
	return b.from.WriteTo(b)
}

// Write implements io.Writer, for the body.
func (b *ChargedBody) Write(p []byte) (int, error) {
	n, err := b.to.Write(p)
	b.written += int64(n)
	if more := b.written - b.charged; more >= chargeStep {
		b.charged = b.written
		b.charge(float64(more))
	}
	return n, err
}

// ChargeStream pays for what a forwarded response that goes on brings. It is over when it alone
// brings more in a second than the budget, and that is spent.
func (s *Spending) ChargeStream() func(bytes int64) (over bool) {
	b := s.bytes
	if b == nil {
		return nil
	}
	return func(n int64) bool {
		b.Charge(s.User, float64(n))
		return n > b.PerSecond() && b.Take(s.User, 0) > 0
	}
}

// MaxRetry is the most that a client over its budget is asked to wait; who comes back earlier
// than something is left is told so again.
const MaxRetry = time.Minute

// Spent says that nothing is left of the budget for some seconds.
func (b *Budget) Spent(user string, wait int) string {
	return fmt.Sprintf(
		"user %q has caused as many requests or bytes of the cluster as %s of kubeweir allows (%s: %d); there is more in %d s, what the cache can answer (resourceVersion=0) is answered now",
		user, b.Rule.Name, b.Setting, b.PerSecond(), wait)
}
