package bubble

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestTimersAtOnce: the process survives many timers of one bubble that are due at once. With
// synctest.Test instead of Test it crashed 20 times out of 20 under the race detector.
func TestTimersAtOnce(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 10 {
		Test(t, func(*testing.T) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 2000 {
						<-time.NewTimer(0).C
					}
				})
			}
			wg.Wait()
		})
	}
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("GOMAXPROCS is %d after, was %d", now, before)
	}
}

func TestBubblesBesideEachOther(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Run("group", func(t *testing.T) {
		for range 4 {
			t.Run("bubble", func(t *testing.T) {
				t.Parallel()
				Test(t, func(*testing.T) { time.Sleep(time.Hour) })
			})
		}
	})
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("GOMAXPROCS is %d after, was %d", now, before)
	}
}
