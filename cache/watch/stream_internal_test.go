package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestWakeAgain checks that a watch that must be woken for a moment that has passed is woken,
// although its timer has fired for just that. A coalescing watch that is behind with nothing for
// its client has no other wake-up.
func TestWakeAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		woken := 0
		s := &stream{wake: time.Now().Add(time.Second)}
		s.timer = time.AfterFunc(time.Second, func() { woken++ })
		time.Sleep(time.Second)
		for want := 1; want < 4; want++ {
			synctest.Wait()
			if woken != want {
				t.Errorf("woken %d times, want %d", woken, want)
			}
			s.wakeAt(s.wake, time.Now())
			time.Sleep(time.Millisecond)
		}
	})
}
