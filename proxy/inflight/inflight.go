package inflight

import (
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
)

// userShare is how many permits one user may hold for each that is free. A user alone gets three
// quarters of the limit, two users three sevenths each, and however many users want more than there
// is, a user without a permit finds one free.
const userShare = 3

// Limiter is a semaphore whose permits, or bytes, are shared fairly between users. It is safe for
// concurrent use.
type Limiter struct {
	Semaphore // inUse is written under mu

	// AdmitFirst is true if a user who holds nothing always gets what it requests, beyond the limit
	// if need be. Use it only if the number of users is small and known.
	AdmitFirst bool

	share Overload // counts rejections because of userShare

	mu    sync.Mutex
	users map[string]int64 // permits by user, without zeros, so at most one entry per permit; guarded by mu
}

// New returns a Limiter. It counts rejections because of the limit in full, those because of a
// user's share in share.
func New(limit int64, full, share Overload) *Limiter {
	l := &Limiter{users: make(map[string]int64), share: share}
	l.Full = full
	l.SetLimit(limit)
	return l
}

// Acquire takes n > 0 permits for user. It reports false if they exceed the limit or the user's
// share.
func (l *Limiter) Acquire(user string, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.users[user]
	if limit := l.Limit(); limit > 0 {
		free := limit - l.InUse()
		if free < n && !(l.AdmitFirst && held == 0) {
			l.Full.count()
			return false
		}
		if held > 0 && held+n > userShare*(free-n) {
			l.share.count()
			return false
		}
	}
	l.users[user] = held + n
	l.inUse.Add(n)
	return true
}

// Take takes n > 0 permits for user regardless of the limit, for memory that is in use in any case.
func (l *Limiter) Take(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[user] += n
	l.inUse.Add(n)
}

// Release returns n permits of user.
func (l *Limiter) Release(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse.Add(-n)
	if l.users[user] -= n; l.users[user] <= 0 {
		delete(l.users, user)
	}
}

// Users returns the number of users that hold permits.
func (l *Limiter) Users() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users)
}

// Semaphore bounds how many requests are in flight. A limit <= 0 means unbounded. A lower limit
// affects later requests only. It is safe for concurrent use.
type Semaphore struct {
	inUse, limit atomic.Int64
	Full         Overload // counts rejections because of the limit
}

// Acquire takes a permit. It reports false if there is none.
func (s *Semaphore) Acquire() bool {
	limit := s.limit.Load()
	if n := s.inUse.Add(1); limit > 0 && n > limit {
		s.Release()
		s.Full.count()
		return false
	}
	return true
}

// Release returns a permit.
func (s *Semaphore) Release() { s.inUse.Add(-1) }

// InUse returns the number of permits that are held.
func (s *Semaphore) InUse() int64 { return s.inUse.Load() }

// Limit returns the limit.
func (s *Semaphore) Limit() int64 { return s.limit.Load() }

// SetLimit replaces the limit.
func (s *Semaphore) SetLimit(n int64) { s.limit.Store(n) }

// Rejected returns kube-apiserver's response over its limits
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
