package route

import (
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// MinReportedAge is the age from which responses from the cache report it.
const MinReportedAge = time.Second

// AgeOf returns the minimum age of the state of c, or 0 if it is below MinReportedAge.
func AgeOf(c *cache.Collection, unreachable bool) time.Duration {
	state := c.State()
	age := state.Delay
	if state.Phase == reflector.Stale || unreachable {
		return max(age, time.Since(state.CurrentAt()), 0)
	}
	if age < MinReportedAge {
		return 0
	}
	return age
}

// FindAge adds how old the state of c is.
func (f *Facts) FindAge(c *cache.Collection) {
	f.Age, f.Unconfirmed = AgeOf(c, f.Unreachable), c.Unconfirmed()
}

// AllowsStale reports whether c, nil for none, may serve a most-recent read while a budget is
// exhausted, although it may not hold the most recent state.
func (f *Facts) AllowsStale(c *cache.Collection) bool {
	return c != nil && f.Budgets.Cached && (f.MaxStaleness == 0 || c.State().Staleness() <= f.MaxStaleness)
}
