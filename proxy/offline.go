package proxy

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// isAway reports whether the upstream cannot be reached, as far as is known.
func (g *Gateway) isAway() bool { return g.Reachable != nil && !g.Reachable() }

// holdsOffline reports whether c may answer a most-recent read in session mode although
// the upstream cannot be reached: it holds every write that was answered here. Of one that
// was not nobody knows whether it was applied.
func (g *Gateway) holdsOffline(ctx context.Context, x *exchange, c *cache.Collection) bool {
	return g.isAway() && x.AllowsOffline() && g.session.holdsAnswered(ctx, c)
}

// lateAfter is from which age on answers from the cache say how old they are.
const lateAfter = time.Second

// ageOf is how old what c holds is, at least; 0 if that is not worth a word.
func (g *Gateway) ageOf(c *cache.Collection) time.Duration {
	state := c.State()
	age := state.Delay
	if state.Phase == reflector.Stale || g.isAway() {
		return max(age, time.Since(state.CurrentAt()), 0)
	}
	if age < lateAfter {
		return 0
	}
	return age
}

// markStale says how old an answer is (RFC 9111), and counts it; stale answers of less
// than a second are marked as well.
func (g *Gateway) markStale(resp *api.Response, age time.Duration) {
	if age <= 0 {
		return
	}
	g.account.metrics.stale.Inc()
	resp.Header.Add("Age", strconv.FormatInt(int64(age/time.Second), 10))
	resp.Header.Add("Warning", `110 kubeweir "Response is Stale"`)
}

func newStaleCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubeweir_stale_answers_total",
		Help: "Answers from the cache that said how old they were (Age, Warning 110), because no API server answered, a feed was broken, or what it brings was late.",
	})
}
