package health

import (
	"testing"
	"time"
)

// TestStandings: a server that is unresponsive is not down as well, and one that recovers was not
// always ready.
func TestStandings(t *testing.T) {
	now := time.Unix(1000, 0)
	for was := Ready; was <= Unresponsive; was++ {
		for next := Ready; next <= Unresponsive; next++ {
			var s Server
			s.Enter(was, now)
			got, changed := s.Enter(next, now)
			if want := was != next && (was != Unresponsive || next != Down); got != was || changed != want {
				t.Errorf("%v, then %v: was %v, changed %v", was, next, got, changed)
			}
			if want := was != Ready && next == Ready; (s.ReadySince() != 0) != want {
				t.Errorf("%v, then %v: ready since %d", was, next, s.ReadySince())
			}
		}
	}
}

// TestEjection: connections that break in a row make a server one to avoid for a while.
func TestEjection(t *testing.T) {
	var s Server
	now := time.Unix(1000, 0)
	for i := range 2*maxBroken - 1 {
		if i == maxBroken-1 {
			s.Responded()
		}
		if s.Broke(now) != (i == 2*maxBroken-2) {
			t.Errorf("connection %d", i)
		}
	}
	for after, want := range map[time.Duration]Standing{0: NotReady, ejectedFor - 1: NotReady, ejectedFor: Ready} {
		if got := s.StandingAt(now.Add(after)); got != want || s.Standing() != Ready {
			t.Errorf("%v later: %v", after, got)
		}
	}
}
