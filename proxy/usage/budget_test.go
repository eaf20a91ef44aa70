package usage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func budgetOfTest(perSecond int64, most int) (*Budget, *clock) {
	c := &clock{now: start}
	return newBudget(perSecond, most, func() time.Time { return c.now }), c
}

// TestBudget: a burst, then the rate, and what was spent beyond is paid off first.
func TestBudget(t *testing.T) {
	b, c := budgetOfTest(5, 10)
	take := func(tries int) (granted int) {
		for range tries {
			if b.Take("jane", 1) == 0 {
				granted++
			}
		}
		return granted
	}
	if got := take(100); got != 50 {
		t.Errorf("%d at once", got)
	}
	if got := b.Take("joe", 1); got != 0 {
		t.Errorf("somebody else waits %v", got)
	}
	c.now = c.now.Add(time.Second)
	if got := take(100); got != 5 {
		t.Errorf("%d after a second", got)
	}
	b.Charge("jane", 60)
	if wait := b.Take("jane", 1); wait < 12*time.Second-time.Millisecond || wait > 12*time.Second+time.Millisecond {
		t.Errorf("a debt of 60 is paid off in %v", wait)
	}
	c.now = c.now.Add(11 * time.Second)
	if got := take(100); got != 0 {
		t.Errorf("%d in debt", got)
	}
	c.now = c.now.Add(time.Hour)
	if got := take(100); got != 50 {
		t.Errorf("%d after an hour", got)
	}
	b.Charge("jane", -1000)
	if got := take(100); got != 50 {
		t.Errorf("%d when too much was given back", got)
	}
}

// TestBudgetBounded: however many names somebody has, or invents, they get no more than the users there is room for,
// and nobody gets rid of a debt by them.
func TestBudgetBounded(t *testing.T) {
	const most = 20
	b, c := budgetOfTest(1, most)
	b.Charge("debtor", 1000)
	granted := 0
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		if b.Take(fmt.Sprint("name-", i), 1) == 0 {
			granted++
		}
		if b.Users() > most {
			t.Fatalf("%d users", b.Users())
		}
		if i%100 == 0 {
			c.now = c.now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			if b.Take("debtor", 1) == 0 {
				t.Fatalf("who owes was let in at %v", c.now.Sub(start))
			}
		}
	}
	// Each bucket's burst, the shared ones', and what all of them were filled with in that time.
	passed := c.now.Sub(start).Seconds()
	if limit := 2 * most * (10 + passed); float64(granted) > limit {
		t.Errorf("%d were granted in %.0f s, which is more than %.0f", granted, passed, limit)
	}
	long := strings.Repeat("x", 10000)
	if b.Take(long, 0); b.buckets[long] != nil {
		t.Error("a name is kept whole")
	}
}

// TestBudgetFairness: one user's debt is no other's.
func TestBudgetFairness(t *testing.T) {
	b, c := budgetOfTest(1, 10)
	for i := range 9 {
		b.Charge(fmt.Sprint("user-", i), 1000)
	}
	for range 100 {
		if b.Take("jane", 1) != 0 {
			t.Fatal("jane is over her budget")
		}
		c.now = c.now.Add(time.Second)
	}
}

// TestBudgetOfManyUsers: who finds no room suffers from hardly anybody who found none either, and does not get rid of
// a debt by waiting for room.
func TestBudgetOfManyUsers(t *testing.T) {
	b, c := budgetOfTest(1, 1000)
	for i := range 1000 {
		b.Charge(fmt.Sprint("known-", i), 1000)
	}
	b.Charge("late", 100)
	suffer := 0
	for i := range 500 {
		if b.Take(fmt.Sprint("other-", i), 1) != 0 {
			suffer++
		}
	}
	if suffer > 10 {
		t.Errorf("%d of 500 suffer from one", suffer)
	}
	if b.Take("late", 1) == 0 {
		t.Error("a debt is forgotten")
	}
	c.now = c.now.Add(20 * time.Second)
	clear(b.buckets)
	if b.Take("late", 1) == 0 {
		t.Error("a debt is forgotten when there is room again")
	}
}

func BenchmarkBudget(b *testing.B) {
	budget := NewBudget(1 << 40)
	b.ReportAllocs()
	for b.Loop() {
		budget.Take("system:serviceaccount:headlamp:headlamp", 1)
	}
}
