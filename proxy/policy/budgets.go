package policy

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// BudgetState describes the budgets of a rule.
type BudgetState struct {
	// Rule is its path in the configuration, Who describes the requests that it matches.
	Rule string `json:"rule"`
	Who  string `json:"who"`
	// RequestsPerSecond and BytesPerSecond are 0 without such a budget.
	RequestsPerSecond int64 `json:"requestsPerSecond,omitempty"`
	BytesPerSecond    int64 `json:"bytesPerSecond,omitempty"`
	// Rejected and RespondedStale count the requests that were rejected, or served from the cache,
	// because a budget was exhausted.
	Rejected       int64 `json:"rejected"`
	RespondedStale int64 `json:"servedStale"`
	// Users is how many users have spent something, at most.
	Users int `json:"-"`
}

// RuleBudgets are the budgets of a rule, and the numbers of requests that were over them.
type RuleBudgets struct {
	Name            string  // rules[2]
	Who             string  // see BudgetState
	Requests, Bytes *Budget // nil without one
	Rejected, Stale atomic.Int64
}

// Budget is a budget of a rule.
type Budget struct {
	*usage.Budget
	Rule    *RuleBudgets
	Setting string // its name in the configuration: upstreamRequestsPerSecond
}

// newBudgets returns the budgets of the rule with index i, nil if it has none.
func newBudgets(i int, r *Rule) *RuleBudgets {
	b := &RuleBudgets{Name: ruleName(i), Who: r.Match.String()}
	if n := r.Settings.UpstreamRequestsPerSecond; n > 0 {
		b.Requests = &Budget{usage.NewBudget(n), b, "upstreamRequestsPerSecond"}
	}
	if n := r.Settings.UpstreamBytesPerSecond; n > 0 {
		b.Bytes = &Budget{usage.NewBudget(n), b, "upstreamBytesPerSecond"}
	}
	if b.Requests == nil && b.Bytes == nil {
		return nil
	}
	return b
}

// ruleName returns the path of a rule in the configuration.
func ruleName(i int) string { return fmt.Sprintf("rules[%d]", i) }

// State describes the budgets.
func (b *RuleBudgets) State() BudgetState {
	state := BudgetState{Rule: b.Name, Who: b.Who, Rejected: b.Rejected.Load(), RespondedStale: b.Stale.Load()}
	if b.Requests != nil {
		state.RequestsPerSecond, state.Users = b.Requests.PerSecond(), b.Requests.Users()
	}
	if b.Bytes != nil {
		state.BytesPerSecond, state.Users = b.Bytes.PerSecond(), max(state.Users, b.Bytes.Users())
	}
	return state
}

// keepBudgets gives budgets that are equal to one of before the buckets and counts of that one. Of
// several equal ones, the first one gets those of the first.
func keepBudgets(budgets, before []*RuleBudgets) {
	before = slices.Clone(before)
	for _, b := range budgets {
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
		b.Rejected.Store(old.Rejected.Load())
		b.Stale.Store(old.Stale.Load())
	}
}

// sameRate reports whether both grant the same amount per second, or both are nil.
func (b *Budget) sameRate(other *Budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.PerSecond() == other.PerSecond()
}

// Same reports whether both use the same buckets, or both are nil.
func (b *Budget) Same(other *Budget) bool {
	if b == nil || other == nil {
		return b == other
	}
	return b.Budget == other.Budget
}

// budgetMetrics exports the outcomes of budgets.
type budgetMetrics struct {
	desc    *prometheus.Desc
	budgets func() []*RuleBudgets
}

// RegisterBudgets registers the metrics of the budgets that the function returns at the time of a
// scrape. registerer may be nil.
func RegisterBudgets(registerer prometheus.Registerer, budgets func() []*RuleBudgets) {
	if registerer == nil {
		return
	}
	registerer.MustRegister(&budgetMetrics{prometheus.NewDesc("kubeweir_budget_exceeded_total",
		"Requests of users who had exhausted an upstream budget, by the rule that has the budget and the outcome: rejected (with 429), cached (served from the cache, with the age of the response).", []string{"rule", "outcome"}, nil), budgets})
	gaugefunc.Register(registerer, "kubeweir_budget_users",
		"Users with a bucket in an upstream budget, over all rules. A budget has at most 4,096 buckets; further users share buckets, each with few others.",
		func() (n int) {
			for _, rule := range budgets() {
				for _, b := range []*Budget{rule.Requests, rule.Bytes} {
					if b != nil {
						n += b.Users()
					}
				}
			}
			return n
		})
}

// Describe implements prometheus.Collector.
func (m *budgetMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

// Collect implements prometheus.Collector.
func (m *budgetMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, b := range m.budgets() {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(b.Rejected.Load()), b.Name, "rejected")
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(b.Stale.Load()), b.Name, "cached")
	}
}
