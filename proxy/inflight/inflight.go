package inflight

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/reason"
)

// Semaphore bounds how many of something are under way. A limit <= 0 means unbounded. One that
// is lowered counts for who comes next. It is safe for concurrent use.
type Semaphore struct {
	now, limit atomic.Int64
	Full       Overload // of requests refused because of limit
}

// Acquire takes a place, or reports that there is none.
func (g *Semaphore) Acquire() bool {
	limit := g.limit.Load()
	if n := g.now.Add(1); limit > 0 && n > limit {
		g.now.Add(-1)
		g.Full.count()
		return false
	}
	return true
}

// InUse returns how many places are taken.
func (g *Semaphore) InUse() int64 { return g.now.Load() }

// Limit returns the limit.
func (g *Semaphore) Limit() int64 { return g.limit.Load() }

// SetLimit replaces the limit.
func (g *Semaphore) SetLimit(n int64) { g.limit.Store(n) }

// Release gives a place back.
func (g *Semaphore) Release() { g.now.Add(-1) }

// Overload counts the requests that are refused for one reason. The zero value counts
// nothing.
type Overload struct {
	why      reason.Refusal
	byKind   prometheus.Counter
	refusals *reason.Counter
}

func (o *Overload) count() {
	if o.byKind != nil {
		o.byKind.Inc()
		o.refusals.Count(o.why)
	}
}

// Users returns how many users hold something.
func (l *Limiter) Users() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users)
}

// Held returns what a user holds.
func (l *Limiter) Held(user string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[user]
}

// userShare is how many places one user may hold for each that is free. A user alone
// so gets three quarters of all, two of them three sevenths each, and however many
// want more than there is, somebody who has none yet finds one free.
const userShare = 3

// Limiter is a semaphore whose places, or bytes, are shared fairly between users. It is safe
// for concurrent use.
type Limiter struct {
	Semaphore // now is written under mu

	mu    sync.Mutex
	users map[string]int64 // held by user, without zeros: never more users than places. Guarded by mu.

	share Overload // of requests refused because of userShare
	// First tells that who holds nothing always gets what it asks for, beyond the limit if need be.
	// It is for users that are few and known.
	First bool
}

// New counts who gets no place by full and share.
func New(limit int64, full, share Overload) *Limiter {
	l := &Limiter{users: make(map[string]int64), share: share}
	l.Full = full
	l.SetLimit(limit)
	return l
}

// Acquire takes n > 0 places for user, or reports that there are not as many for that
// one.
func (l *Limiter) Acquire(user string, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.users[user]
	if limit := l.limit.Load(); limit > 0 {
		free := limit - l.now.Load()
		if free < n && !(l.First && held == 0) {
			l.Full.count()
			return false
		}
		if held > 0 && held+n > userShare*(free-n) {
			l.share.count()
			return false
		}
	}
	l.users[user] = held + n
	l.now.Add(n)
	return true
}

// Take takes n > 0 places for user whether there are as many or not: for what is there in any
// case.
func (l *Limiter) Take(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[user] += n
	l.now.Add(n)
}

// Release gives n places of user back.
func (l *Limiter) Release(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Add(-n)
	if l.users[user] -= n; l.users[user] <= 0 {
		delete(l.users, user)
	}
}

// Overloads makes the counters of requests that are refused for want of a place.
type Overloads struct {
	byKind   *prometheus.CounterVec
	refusals *reason.Counter
}

func (o *Overloads) Of(kind, limit string, why reason.Refusal) Overload {
	return Overload{why, o.byKind.WithLabelValues(kind, limit), o.refusals}
}

func NewOverloads(registerer prometheus.Registerer, refusals *reason.Counter) *Overloads {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_requests_refused_total",
		Help: "Requests answered 429, by kind (see kubeweir_requests_in_flight) and reason: limit (no place is free), share (the user holds too many of them), all and cluster (the same over several clusters).",
	}, []string{"kind", "reason"})
	if registerer != nil {
		registerer.MustRegister(refused)
	}
	return &Overloads{refused, refusals}
}

// RegisterMetrics shows how much of the limits is in use.
func RegisterMetrics(registerer prometheus.Registerer, gauges map[string]*Semaphore) {
	if registerer == nil {
		return
	}
	for kind, g := range gauges {
		labels := prometheus.Labels{"kind": kind}
		registerer.MustRegister(
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight", ConstLabels: labels,
				Help: "Requests under way; long ones are watches, followed logs and upgraded connections, unidentified ones those whose sender is being found out, resumed ones the watches among them that the upstream continues from before the cache's history; all-short and all-long are those of all clusters of a gateway of several.",
			}, func() float64 { return float64(g.now.Load()) }),
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight_limit", ConstLabels: labels,
				Help: "The most requests under way before more are refused; 0 is no limit.",
			}, func() float64 { return float64(g.limit.Load()) }),
		)
	}
}

// Rejected is kube-apiserver's answer over its limits
// (k8s.io/apiserver/pkg/server/filters/maxinflight.go): plain text, retryable.
func Rejected() *api.Response {
	return &api.Response{
		Status: 429,
		Header: api.Header{
			{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
			{Name: "Retry-After", Value: "1"},
			{Name: "X-Content-Type-Options", Value: "nosniff"},
		},
		Body: []byte("Too many requests, please try again later.\n"),
	}
}
