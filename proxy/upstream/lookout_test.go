package upstream

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lookedFor is a life whose probes end as a test says, in a bubble of fake time.
type lookedFor struct {
	*life
	feed   *feedConn
	probes atomic.Int32
	// answers and refuses say how a probe ends at once; without either it hangs.
	answers, refuses atomic.Bool
}

// testLookout runs a test with an upstream that is gone after 10 s of silence, and whose
// feeds are pinged every 5 s.
func testLookout(t *testing.T, test func(*lookedFor)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &lookedFor{life: &life{
			limit: 10 * time.Second, contacts: newContacts(time.Now), now: time.Now, log: slog.New(slog.DiscardHandler), ctx: ctx,
			spawn: func(f func()) bool { go f(); return true },
		}}
		f.probe = func() {
			f.probes.Add(1)
			switch {
			case f.answers.Load():
				f.sign()
			case f.refuses.Load():
				f.probeFailed(time.Now())
			}
		}
		f.feed = f.contacts.track(nil).(*feedConn)
		defer f.contacts.begin(f.feed)()
		f.pong()
		go f.guard(ctx, 5*time.Second)
		test(f)
	})
}

func (f *lookedFor) isAway() bool {
	ok, _ := f.reachable()
	return !ok
}

// pong is a sign of life on the feeds' connection.
func (f *lookedFor) pong() {
	f.feed.last.Store(time.Now().UnixNano())
	f.contacts.last.Store(time.Now().UnixNano())
}

func TestGoneIsKnownBeforeSomebodyAsks(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		for range 100 { // all is well
			time.Sleep(5 * time.Second)
			f.pong()
		}
		if n := f.probes.Load(); n != 0 {
			t.Errorf("%d probes of an upstream that answers pings", n)
		}
		time.Sleep(16 * time.Second) // a ping, and then silence
		if !f.isAway() || !f.isGone() {
			t.Fatal("a silent upstream is not known to be gone")
		}
		time.Sleep(time.Hour)
		f.answers.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if f.isAway() || f.isGone() {
			t.Fatal("it is not known to be back after a second")
		}
		before := f.probes.Load()
		f.pong()
		time.Sleep(5 * time.Second)
		if n := f.probes.Load(); n != before {
			t.Errorf("%d probes of an upstream that is back", n-before)
		}
	})
}

func TestAnUpstreamThatRefusesIsAwayAndTried(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		f.refuses.Store(true)
		f.suspect(time.Now())
		time.Sleep(time.Second)
		if !f.isAway() {
			t.Error("not away")
		}
		time.Sleep(time.Minute)
		if f.isGone() || !f.isAway() {
			t.Errorf("gone: %v, away: %v; requests find out as soon as probes", f.isGone(), f.isAway())
		}
		f.sign()
		if f.isAway() {
			t.Error("away after an answer")
		}
	})
}

// TestOneBadProbeIsNothing: there may be a balancer with one bad server.
func TestOneBadProbeIsNothing(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		f.refuses.Store(true)
		f.suspect(time.Now())
		synctest.Wait()
		if f.isAway() {
			t.Error("away after one probe")
		}
		time.Sleep(time.Millisecond)
		f.sign()
		time.Sleep(time.Second)
		synctest.Wait()
		if f.isAway() || f.lookout.under.Load() {
			t.Error("still looked for")
		}
	})
}
