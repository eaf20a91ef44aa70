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
