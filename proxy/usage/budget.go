package usage

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Budget is a token bucket for each user: so much in a second, and what ten seconds bring at
// once. What is spent may be known only afterwards; it is a debt then, and nothing is granted
// before that is paid off.
//
// Buckets are kept of a bounded number of users. Only one that is full, as a new one is, makes
// room for another; who finds no room has one of as many shared ones, which one nobody can choose, and
// begins with what is left in that later. So nobody gets a new bucket for one that is spent, and what
// one who found no room spends is missing to hardly anybody else. It is safe for concurrent use.
type Budget struct {
	rate, burst float64
	most        int // users
	now         func() time.Time

	seed maphash.Seed

	mu      sync.Mutex
	buckets map[string]*bucket // guarded by mu
	// shared are those of who found no room, by hash; none before there was somebody. Guarded by mu.
	shared []bucket
}

// bucket is what is left at a time; below 0 it is a debt.
type bucket struct {
	left float64
	at   time.Time
}

const (
	// burstTime is for how long a budget that nobody used is saved.
	burstTime = 10 * time.Second
	// maxBuckets is how many users a budget knows, and bucketSample how many of them are
	// looked at for one who needs none.
	maxBuckets   = 4096
	bucketSample = 8
)

// NewBudget returns a budget of so much in a second for each user.
func NewBudget(perSecond int64) *Budget { return newBudget(perSecond, maxBuckets, time.Now) }

func newBudget(perSecond int64, most int, now func() time.Time) *Budget {
	b := &Budget{rate: float64(perSecond), most: most, now: now, seed: maphash.MakeSeed(), buckets: make(map[string]*bucket)}
	b.burst = b.rate * burstTime.Seconds()
	return b
}

// PerSecond is how much a user may spend in a second.
func (b *Budget) PerSecond() int64 { return int64(b.rate) }

// Take spends so much if anything is left. Otherwise it tells in which time something will be.
func (b *Budget) Take(user string, amount float64) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.of(user)
	if wait = b.wait(a); wait == 0 {
		a.left -= amount
	}
	return wait
}

// Charge spends what was spent already; below 0 it is given back.
func (b *Budget) Charge(user string, amount float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.of(user)
	a.left = min(a.left-amount, b.burst)
}

// Wait tells in which time something will be left, 0 if something is. It spends and notes nothing.
func (b *Budget) Wait(user string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	user = Bounded(user)
	now := b.now()
	a := b.buckets[user]
	if a == nil {
		a = b.sharedBy(user, now)
	}
	then := *a
	b.fill(&then, now)
	return b.wait(&then)
}

// wait is in which time something will be left of a, 0 if something is.
func (b *Budget) wait(a *bucket) time.Duration {
	if a.left > 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(-a.left/b.rate*float64(time.Second)))
}

// Users is how many users have a bucket.
func (b *Budget) Users() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.buckets)
}

// of is a user's bucket as it is now. The caller holds mu.
func (b *Budget) of(user string) *bucket {
	now := b.now()
	user = Bounded(user)
	a := b.buckets[user]
	if a == nil {
		shared := b.sharedBy(user, now)
		if len(b.buckets) >= b.most && !b.makeRoom(now) {
			return shared
		}
		a = &bucket{shared.left, now}
		b.buckets[strings.Clone(user)] = a
	}
	b.fill(a, now)
	return a
}

// sharedBy is the bucket that a user has who finds no room. The caller holds mu.
func (b *Budget) sharedBy(user string, now time.Time) *bucket {
	if b.shared == nil {
		if len(b.buckets) < b.most {
			return &bucket{b.burst, now}
		}
		b.shared = make([]bucket, b.most)
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

// makeRoom forgets users whose buckets are full. The caller holds mu.
func (b *Budget) makeRoom(now time.Time) (made bool) {
	looked := 0
	for user, a := range b.buckets { // in random order
		if b.fill(a, now); a.left >= b.burst {
			delete(b.buckets, user)
			made = true
		}
		if looked++; looked == bucketSample {
			break
		}
	}
	return made
}
