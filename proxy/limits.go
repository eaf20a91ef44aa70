package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/reason"
)

// semaphore bounds how many of something are under way. A limit <= 0 means unbounded. One that
// is lowered counts for who comes next. It is safe for concurrent use.
type semaphore struct {
	now, limit atomic.Int64
	full       overload // of requests refused because of limit
}

// acquire takes a place, or reports that there is none.
func (g *semaphore) acquire() bool {
	limit := g.limit.Load()
	if n := g.now.Add(1); limit > 0 && n > limit {
		g.now.Add(-1)
		g.full.count()
		return false
	}
	return true
}

func (g *semaphore) release() { g.now.Add(-1) }

// overload counts the requests that are refused for one reason. The zero value counts
// nothing.
type overload struct {
	why      reason.Refusal
	byKind   prometheus.Counter
	refusals *reason.Counter
}

func (o *overload) count() {
	if o.byKind != nil {
		o.byKind.Inc()
		o.refusals.Count(o.why)
	}
}

// userShare is how many places one user may hold for each that is free. A user alone
// so gets three quarters of all, two of them three sevenths each, and however many
// want more than there is, somebody who has none yet finds one free.
const userShare = 3

// limiter is a semaphore whose places, or bytes, are shared fairly between users. It is safe
// for concurrent use.
type limiter struct {
	semaphore // now is written under mu

	mu    sync.Mutex
	users map[string]int64 // held by user, without zeros: never more users than places. Guarded by mu.

	share overload // of requests refused because of userShare
	// first tells that who holds nothing always gets what it asks for, beyond the limit if need be.
	// It is for users that are few and known.
	first bool
}

// newLimiter counts who gets no place by full and share.
func newLimiter(limit int64, full, share overload) *limiter {
	l := &limiter{users: make(map[string]int64), share: share}
	l.full = full
	l.limit.Store(limit)
	return l
}

// acquire takes n > 0 places for user, or reports that there are not as many for that
// one.
func (l *limiter) acquire(user string, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.users[user]
	if limit := l.limit.Load(); limit > 0 {
		free := limit - l.now.Load()
		if free < n && !(l.first && held == 0) {
			l.full.count()
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

// take takes n > 0 places for user whether there are as many or not: for what is there in any
// case.
func (l *limiter) take(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[user] += n
	l.now.Add(n)
}

// release gives n places of user back.
func (l *limiter) release(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Add(-n)
	if l.users[user] -= n; l.users[user] <= 0 {
		delete(l.users, user)
	}
}

// What a request costs while it is open beside its place, in bytes.
const (
	// maxHeldBytes bounds what all long-running requests keep beyond ordinaryBytes each,
	// with the bodies that are being transcoded.
	maxHeldBytes = 128 << 20
	// ordinaryBytes is what a place comes with: the requests of informers have some
	// hundred bytes, with a token of a service account some two thousand.
	ordinaryBytes = 4 << 10
	// selectorCost is how many bytes a byte of a selector is kept as: its text, parsed
	// and compiled, in the attributes that are reviewed, and in an index.
	selectorCost = 32
)

// heldBy is how many bytes a request holds beside its place: while it is answered a body
// that is transcoded, for as long as it runs also its text.
func heldBy(r *api.Request, long bool) int64 {
	n := transcodedBytes(r)
	if long {
		n += excess(r)
	}
	return n
}

// excess is how many bytes a request keeps beyond ordinaryBytes.
func excess(r *api.Request) int64 {
	info := r.Info()
	n := len(r.RawPath) + len(r.RawQuery) + selectorCost*selectorBytes(info)
	for _, f := range r.Header {
		n += len(f.Name) + len(f.Value)
	}
	return max(0, int64(n)-ordinaryBytes)
}

// selectorBytes is the length of the selectors that a request keeps. Watches by the
// deprecated paths are authorized without them, and select all the same.
func selectorBytes(info *api.RequestInfo) int {
	n := len(info.FieldSelector) + len(info.LabelSelector)
	if n > 0 || info.Verb != "watch" {
		return n
	}
	if l := info.Options.LabelSelector; l != nil && !l.Empty() {
		n += len(l.String())
	}
	if f := info.Options.FieldSelector; f != nil && !f.Empty() {
		n += len(f.String())
	}
	return n
}

// overloads makes the counters of requests that are refused for want of a place.
type overloads struct {
	byKind   *prometheus.CounterVec
	refusals *reason.Counter
}

func (o *overloads) of(kind, limit string, why reason.Refusal) overload {
	return overload{why, o.byKind.WithLabelValues(kind, limit), o.refusals}
}

func newOverloads(registerer prometheus.Registerer, refusals *reason.Counter) *overloads {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_requests_refused_total",
		Help: "Requests answered 429, by kind (see kubeweir_requests_in_flight) and reason: limit (no place is free), share (the user holds too many of them), all and cluster (the same over several clusters).",
	}, []string{"kind", "reason"})
	if registerer != nil {
		registerer.MustRegister(refused)
	}
	return &overloads{refused, refusals}
}

// overloaded is kube-apiserver's answer over its limits
// (k8s.io/apiserver/pkg/server/filters/maxinflight.go): plain text, retryable.
func overloaded() *api.Response {
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
