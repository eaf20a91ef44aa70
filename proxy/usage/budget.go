package usage

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Budget is a token bucket for each user: an amount per second, with a burst of ten seconds. The
// amount spent may be known only afterwards; it becomes a debt then, and nothing is granted before
// the debt is paid off.
//
// The number of users with buckets is limited. Only a full bucket, which is equal to a new one, makes
// room for another user. A user without room shares one of as many other buckets, which one nobody
// can choose, and begins with what is left in it when there is room later. So nobody gets a new
// bucket for a spent one, and hardly any user is affected by what another one without room spends.
//
// It is safe for concurrent use.
type Budget struct {
	rate, burst float64
	maxUsers    int
	now         func() time.Time
	seed        maphash.Seed

	mu      sync.Mutex
	buckets map[string]*bucket // guarded by mu
	// shared are the buckets of users without room, by hash; nil as long as there were none. Guarded
	// by mu.
	shared []bucket
}

// bucket is what is left at a time, negative for a debt.
type bucket struct {
	left float64
	at   time.Time
}

const (
	// burstTime is for how long an unused budget accumulates.
	burstTime = 10 * time.Second
	// maxBuckets is how many users have buckets. bucketSample is how many of these are checked for
	// one that is full.
	maxBuckets   = 4096
	bucketSample = 8
)

// NewBudget returns a budget of an amount per second for each user.
func NewBudget(perSecond int64) *Budget { return newBudget(perSecond, maxBuckets, time.Now) }

func newBudget(perSecond int64, maxUsers int, now func() time.Time) *Budget {
	rate := float64(perSecond)
	return &Budget{
		rate: rate, burst: rate * burstTime.Seconds(), maxUsers: maxUsers, now: now,
		seed: maphash.MakeSeed(), buckets: make(map[string]*bucket),
	}
}

// PerSecond returns how much a user may spend in a second.
func (b *Budget) PerSecond() int64 { return int64(b.rate) }

// Take spends an amount if anything is left. Otherwise it returns the time until something is.
func (b *Budget) Take(user string, amount float64) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.bucketLocked(user)
	if wait = b.wait(a); wait == 0 {
		a.left -= amount
	}
	return wait
}

// Charge spends an amount that is spent already. A negative amount is given back.
func (b *Budget) Charge(user string, amount float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.bucketLocked(user)
	a.left = min(a.left-amount, b.burst)
}

// Wait returns the time until something is left, 0 if something is. It changes nothing.
func (b *Budget) Wait(user string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	user = Bounded(user)
	now := b.now()
	a := b.buckets[user]
	if a == nil {
		a = b.sharedLocked(user, now)
	}
	then := *a
	b.fill(&then, now)
	return b.wait(&then)
}

func (b *Budget) wait(a *bucket) time.Duration {
	if a.left > 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(-a.left/b.rate*float64(time.Second)))
}

// Users returns how many users have a bucket.
func (b *Budget) Users() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.buckets)
}

// bucketLocked returns a user's bucket as it is now.
func (b *Budget) bucketLocked(user string) *bucket {
	now := b.now()
	user = Bounded(user)
	a := b.buckets[user]
	if a == nil {
		shared := b.sharedLocked(user, now)
		if len(b.buckets) >= b.maxUsers && !b.evictLocked(now) {
			return shared
		}
		a = &bucket{shared.left, now}
		b.buckets[strings.Clone(user)] = a
	}
	b.fill(a, now)
	return a
}

// sharedLocked returns the bucket of a user without room.
func (b *Budget) sharedLocked(user string, now time.Time) *bucket {
	if b.shared == nil {
		if len(b.buckets) < b.maxUsers {
			return &bucket{b.burst, now}
		}
		b.shared = make([]bucket, b.maxUsers)
		for i := range b.shared {
			b.shared[i] = bucket{b.burst, now}
		}
	}
	a := &b.shared[maphash.String(b.seed, user)%uint64(len(b.shared))]
	b.fill(a, now)
	return a
}

func (b *Budget) fill(a *bucket, now time.Time) {
	a.left = min(b.burst, a.left+b.rate*now.Sub(a.at).Seconds())
	a.at = now
}

// evictLocked drops the full buckets of a sample.
func (b *Budget) evictLocked(now time.Time) (evicted bool) {
	seen := 0
	for user, a := range b.buckets { // in random order
		if b.fill(a, now); a.left >= b.burst {
			delete(b.buckets, user)
			evicted = true
		}
		if seen++; seen == bucketSample {
			break
		}
	}
	return evicted
}
