package inflight

import (
	"fmt"
	"testing"
)

func TestLimiterSharesFairly(t *testing.T) {
	for limit, want := range map[int64]int{1: 1, 2: 1, 3: 2, 4: 3, 100: 75, 2000: 1500} {
		l := New(limit, Overload{}, Overload{})
		n := 0
		for l.Acquire("greedy", 1) {
			n++
		}
		if n != want {
			t.Errorf("of %d permits one user gets %d, want %d", limit, n, want)
		}
		if limit > 1 && !l.Acquire("other", 1) {
			t.Errorf("of %d permits one user leaves none for another", limit)
		}
	}
}

func TestLimiterLeavesRoomForOneMore(t *testing.T) {
	l := New(2000, Overload{}, Overload{})
	users := 50
	for again := true; again; {
		again = false
		for u := range users {
			again = l.Acquire(fmt.Sprint("greedy", u), 1) || again
		}
	}
	if !l.Acquire("modest", 1) {
		t.Error("no permit is left for a user who has none")
	}
	l.Release("modest", 1)
	for u := range users {
		for name := fmt.Sprint("greedy", u); l.users[name] > 0; {
			l.Release(name, 1)
		}
	}
	if l.Users() != 0 || l.InUse() != 0 {
		t.Errorf("%d users and %d permits are left over", l.Users(), l.InUse())
	}
}

func BenchmarkLimiter(b *testing.B) {
	l := New(2000, Overload{}, Overload{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if l.Acquire("system:serviceaccount:kube-system:generic-garbage-collector", 1) {
				l.Release("system:serviceaccount:kube-system:generic-garbage-collector", 1)
			}
		}
	})
}
