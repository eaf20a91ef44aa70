package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/usage"
	"github.com/kubeweir/kubeweir/reason"
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

// budget is one of a rule.
type budget struct {
	*usage.Budget
	rule    *ruleBudgets
	setting string // upstreamRequestsPerSecond
}

// ruleBudgets are those of a rule, and what they have led to.
type ruleBudgets struct {
	name            string // rules[2]
	who             string
	requests, bytes *budget // nil without one
	refused, stale  budgetAnswers
}

// budgetAnswers counts answers of a kind.
type budgetAnswers struct {
	n       atomic.Int64
	counter prometheus.Counter
}

func (a *budgetAnswers) inc() {
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
func newBudgets(i int, r *Rule) *ruleBudgets {
	if r.Says.UpstreamRequestsPerSecond == 0 && r.Says.UpstreamBytesPerSecond == 0 {
		return nil
	}
	b := &ruleBudgets{name: ruleName(i), who: r.Match.String()}
	if n := r.Says.UpstreamRequestsPerSecond; n > 0 {
		b.requests = &budget{usage.NewBudget(n), b, "upstreamRequestsPerSecond"}
	}
	if n := r.Says.UpstreamBytesPerSecond; n > 0 {
		b.bytes = &budget{usage.NewBudget(n), b, "upstreamBytesPerSecond"}
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

// Budgets are those of the rules, in their order.
func (g *Gateway) Budgets() []BudgetState {
	out := []BudgetState{}
	for _, b := range g.budgets() {
		state := BudgetState{Rule: b.name, Who: b.who, Refused: b.refused.n.Load(), AnsweredStale: b.stale.n.Load()}
		if b.requests != nil {
			state.RequestsPerSecond, state.Users = b.requests.PerSecond(), b.requests.Users()
		}
		if b.bytes != nil {
			state.BytesPerSecond, state.Users = b.bytes.PerSecond(), max(state.Users, b.bytes.Users())
		}
		out = append(out, state)
	}
	return out
}

func (r *rules) budgets() (all []*ruleBudgets) {
	for i := range r.list {
		if b := r.list[i].budgets; b != nil {
			all = append(all, b)
		}
	}
	return all
}

// budgetMetrics shows what budgets lead to.
type budgetMetrics struct{ answers *prometheus.CounterVec }

// newBudgetMetrics registers the metrics of what budgets returns.
func newBudgetMetrics(registerer prometheus.Registerer, budgets func() []*ruleBudgets) *budgetMetrics {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_budget_answers_total",
		Help: "Requests of users who were over an upstream budget, by the rule that has it and what became of them: refused (429), cached (answered with what the cache held, and its age).",
	}, []string{"rule", "answer"})
	m := &budgetMetrics{answers}
	if registerer == nil {
		return m
	}
	registerer.MustRegister(answers, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_budget_users",
		Help: "Users that upstream budgets know, of all rules together; each budget knows 4,096 at most, and each of the others shares what is left with few of them.",
	}, func() (n float64) {
		for _, rule := range budgets() {
			for _, b := range []*budget{rule.requests, rule.bytes} {
				if b != nil {
					n += float64(b.Users())
				}
			}
		}
		return n
	}))
	return m
}

// show has the counters of rules that have budgets, and those alone. Those of a rule that stays in
// its place go on.
func (m *budgetMetrics) show(budgets, before []*ruleBudgets) {
	for _, old := range before {
		if !slices.ContainsFunc(budgets, func(b *ruleBudgets) bool { return b.name == old.name && b.who == old.who }) {
			m.answers.DeletePartialMatch(prometheus.Labels{"rule": old.name})
		}
	}
	for _, b := range budgets {
		b.refused.counter = m.answers.WithLabelValues(b.name, "refused")
		b.stale.counter = m.answers.WithLabelValues(b.name, "cached")
	}
}

// spending is what a request may cause, by the budgets of its sender.
type spending struct {
	requests, bytes *budget // nil without one
	cached          bool    // over them a most-recent read is answered from the cache
	granted         bool    // it may go on, whatever becomes of the budgets
	// exceeded is the budget that is spent, wait in which time something will be left.
	exceeded *budget
	wait     time.Duration
}

var errOverBudget = errors.New("the sender is over an upstream budget")

// spendingOf finds the budgets of the request's sender, and whether it is blocked by a rule.
func (x *exchange) spendingOf() (s spending, blocked bool) {
	info := x.info
	if !x.request.PlainPath() {
		info = nil // others may read the path as one of any resource
	}
	says := x.policy.rules.decideSender(x.sender.User, x.request.Header.Get("User-Agent"), info)
	return spending{requests: says.requests, bytes: says.bytes, cached: says.OverBudget == OverBudgetCached}, says.Block == Yes
}

// spend finds out who pays for the request, which is not asked for anything if there is nothing
// left; an answer is a refusal.
func (g *Gateway) spend(ctx context.Context, x *exchange) (context.Context, *api.Response) {
	if !x.policy.spends {
		return ctx, nil
	}
	var blocked bool
	if x.spending, blocked = x.spendingOf(); blocked {
		g.refused.Count(reason.Blocked)
		return ctx, x.fail(api.NewTooManyRequests("kubeweir does not serve this client: a rule blocks it", seconds(blockedRetry)))
	}
	if x.exceeds(0) {
		ctx = review.WithoutReviews(ctx)
	}
	return ctx, nil
}

// exceeds reports whether nothing is left of a budget; otherwise requests are paid for.
func (x *exchange) exceeds(requests float64) bool {
	s := &x.spending
	for _, b := range [...]struct {
		*budget
		amount float64
	}{{s.bytes, 0}, {s.requests, requests}} {
		if b.budget == nil {
			continue
		}
		if wait := b.Take(x.user(), b.amount); wait > 0 {
			s.exceeded, s.wait = b.budget, wait
			return true
		}
	}
	return false
}

// mayAsk reports whether the upstream may be asked something on behalf of the request, and pays
// for the first.
func (x *exchange) mayAsk() bool {
	s := &x.spending
	if s.granted || s.requests == nil && s.bytes == nil {
		return true
	}
	s.granted = !x.exceeds(1)
	return s.granted
}

// answersStale reports whether a most-recent read is answered from c although nobody knows
// whether that is the most recent state, because there is nothing left of a budget.
func (g *Gateway) answersStale(x *exchange, c *cache.Collection) bool {
	if !x.spending.cached || x.mayAsk() {
		return false
	}
	if most := x.policy.Consistency.MaxStaleness; most > 0 && behind(c) > most {
		return false
	}
	x.stale = true
	return true
}

// behind is how old what c holds may be.
func behind(c *cache.Collection) time.Duration {
	state := c.State()
	return max(time.Since(state.LastContact), state.Delay, 1)
}

// settle pays for what the request has caused, but for what was paid in advance.
func (x *exchange) settle() {
	s := &x.spending
	if s.requests != nil {
		paid := 0.0
		if s.granted {
			paid = 1
		}
		if more := x.asked.Requests - paid; more != 0 {
			s.requests.Charge(x.user(), more)
		}
	}
	x.settleBytes(x.asked.Bytes)
}

func (x *exchange) settleBytes(n float64) {
	if b := x.spending.bytes; b != nil && n > 0 {
		b.Charge(x.user(), n)
	}
}

// chargeStep is how much of an answer is passed on before it is charged.
const chargeStep = 256 << 10

// chargeBody has a forwarded answer charged while it is passed on, for it may take long; nil where
// nobody pays or there is all of it.
func (x *exchange) chargeBody(resp *api.Response) *chargedBody {
	if x.spending.bytes == nil || resp.BodyTo == nil {
		return nil
	}
	b := &chargedBody{from: resp.BodyTo, charge: x.settleBytes}
	resp.BodyTo = b
	return b
}

// chargedBody is a body of which each step is charged.
type chargedBody struct {
	from   io.WriterTo
	charge func(bytes float64)
	to     io.Writer
	// written is how much of it there was so far, charged what of that is paid.
	written, charged int64
}

// paid is how much of it was charged.
func (b *chargedBody) paid() int64 {
	if b == nil {
		return 0
	}
	return b.charged
}

// WriteTo implements io.WriterTo.
func (b *chargedBody) WriteTo(w io.Writer) (int64, error) {
	b.to = w
	return b.from.WriteTo(b)
}

// Write implements io.Writer, for the body.
func (b *chargedBody) Write(p []byte) (int, error) {
	n, err := b.to.Write(p)
	b.written += int64(n)
	if more := b.written - b.charged; more >= chargeStep {
		b.charged = b.written
		b.charge(float64(more))
	}
	return n, err
}

// chargeStream pays for what a forwarded response that goes on brings. It is over when it alone
// brings more in a second than the budget, and that is spent.
func (x *exchange) chargeStream() func(bytes int64) (over bool) {
	b := x.spending.bytes
	if b == nil {
		return nil
	}
	user := x.user()
	return func(n int64) bool {
		b.Charge(user, float64(n))
		return n > b.PerSecond() && b.Take(user, 0) > 0
	}
}

// mostRetry is the most that a client over its budget is asked to wait; who comes back earlier
// than something is left is told so again.
const mostRetry = time.Minute

// overBudget is the answer to a request over the budget of its sender.
func (g *Gateway) overBudget(x *exchange) *api.Response {
	b, wait := x.spending.exceeded, seconds(x.spending.wait)
	b.rule.refused.inc()
	g.refused.Count(reason.OverBudget)
	return x.fail(api.NewTooManyRequests(b.spent(x.user(), wait), min(wait, seconds(mostRetry))))
}

// spent says that nothing is left of the budget for some seconds.
func (b *budget) spent(user string, wait int) string {
	return fmt.Sprintf(
		"user %q has caused as many requests or bytes of the cluster as %s of kubeweir allows (%s: %d); there is more in %d s, what the cache can answer (resourceVersion=0) is answered now",
		user, b.rule.name, b.setting, b.PerSecond(), wait)
}
