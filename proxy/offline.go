package proxy

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/reason"
)

// allowsOffline reports whether a read is answered by what the upstream said last.
func (x *exchange) allowsOffline() bool { return x.settings.Offline == policy.Yes }

// isAway reports whether the upstream cannot be reached, as far as is known.
func (g *Gateway) isAway() bool { return g.Reachable != nil && !g.Reachable() }

// The refusals of what is known of old only.
var (
	errUnconfirmedClient = comeBack("the upstream could not be asked who you are and what you may do")
	errUnconfirmedCache  = comeBack("no API server has confirmed yet what the gateway kept over its restart")
	errOfflineExpired    = comeBack("no API server answers, and what the cache holds is older than the gateway may serve")
)

// remembered refuses a read of somebody who is known by what the upstream said last, unless
// that is allowed; nil means go on.
func (g *Gateway) remembered(x *exchange) *api.Response {
	if !x.needsOffline() {
		return nil
	}
	g.refused.Count(reason.OfflineDenied)
	return x.fail(errUnconfirmedClient)
}

// needsOffline reports whether a read is of somebody who is known by what the upstream said last, and is not to be answered so.
func (x *exchange) needsOffline() bool {
	return (x.subject.Offline || x.decision.Offline) && !x.allowsOffline()
}

// expired refuses an answer from c that is older than it may be, or that was kept over a
// restart and is not for everybody; nil means go on.
func (g *Gateway) expired(x *exchange, c *cache.Collection, age time.Duration) *api.Response {
	why, err := g.expiry(x, c, age)
	if err == nil {
		return nil
	}
	g.refused.Count(why)
	return x.fail(err)
}

// expiry is why expired refuses; the error is nil if it does not.
func (g *Gateway) expiry(x *exchange, c *cache.Collection, age time.Duration) (why reason.Refusal, err error) {
	unconfirmed := c.Unconfirmed()
	if !unconfirmed && (age <= x.policy.Offline.TTL || !g.isAway()) {
		return why, nil
	}
	switch allowed := x.allowsOffline(); {
	case !allowed && unconfirmed:
		return reason.OfflineDenied, errUnconfirmedCache
	case allowed && age > x.policy.Offline.TTL:
		return reason.OfflineExpired, errOfflineExpired
	}
	return why, nil
}

// holdsOffline reports whether c may answer a most-recent read in session mode although
// the upstream cannot be reached: it holds every write that was answered here. Of one that
// was not nobody knows whether it was applied.
func (g *Gateway) holdsOffline(ctx context.Context, x *exchange, c *cache.Collection) bool {
	return g.isAway() && x.allowsOffline() && g.session.holdsAnswered(ctx, c)
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
	g.metrics.stale.Inc()
	resp.Header.Add("Age", strconv.FormatInt(int64(age/time.Second), 10))
	resp.Header.Add("Warning", `110 kubeweir "Response is Stale"`)
}

func newStaleCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubeweir_stale_answers_total",
		Help: "Answers from the cache that said how old they were (Age, Warning 110), because no API server answered, a feed was broken, or what it brings was late.",
	})
}

// comeBack is a 503 with Retry-After.
func comeBack(message string) error {
	err := api.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}
