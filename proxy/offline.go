package proxy

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
)

// isUnreachable reports whether the upstream cannot be reached, as far as is known.
func (g *Gateway) isUnreachable() bool { return g.Reachable != nil && !g.Reachable() }

// holdsOffline reports whether c may serve a most-recent read in session mode although the upstream
// cannot be reached: it holds every write that got a response here. The outcome of other writes is
// unknown.
func (g *Gateway) holdsOffline(ctx context.Context, x *exchange, c *cache.Collection) bool {
	return g.isUnreachable() && x.AllowsOffline() && g.session.HoldsResponded(ctx, c)
}

// markStale reports the age of a response (RFC 9111) and counts it. Stale responses of less than a
// second are marked, too.
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
		Name: "kubeweir_stale_responses_total",
		Help: "Responses from the cache that stated their age (Age, Warning 110), because no API server responded, or a feed was broken or lagged.",
	})
}
