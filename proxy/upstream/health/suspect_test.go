package health

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// lookedFor is a life whose probes end as a test says, in a bubble of fake time.
type lookedFor struct {
	*Detector
	feed   *FeedConn
	probes atomic.Int32
	// answers and refuses say how a probe ends at once; without either it hangs.
	answers, refuses atomic.Bool
	// closed is whether the feeds' connection was closed, abandoned how often the others
	// were.
	closed    atomic.Bool
	abandoned atomic.Int32
}

// deadConn is a connection that can be closed.
type deadConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c deadConn) Close() error {
	c.closed.Store(true)
	return nil
}

// testLookout runs a test with an upstream that is gone after 10 s of silence, and whose
// feeds are pinged every 5 s.
func testLookout(t *testing.T, test func(*lookedFor)) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &lookedFor{Detector: &Detector{
			Options: Options{Context: ctx, Spawn: func(f func()) bool { go f(); return true }},
			limit:   10 * time.Second, contacts: newFeeds(time.Now), conns: NewConns(), now: time.Now, log: slog.New(slog.DiscardHandler),
		}}
		f.Probe = func() {
			f.probes.Add(1)
			switch {
			case f.answers.Load():
				f.dead.Prove(time.Now(), time.Now())
				f.Answered()
			case f.refuses.Load():
				f.probeFailed(time.Now())
			}
		}
		f.dead.Ask, f.dead.abandon = f.ask, func() { f.abandoned.Add(1) }
		f.feed = f.contacts.Track(&f.dead)(deadConn{closed: &f.closed}).(*FeedConn)
		defer f.contacts.Begin(f.feed, true, new(Reads))()
		f.pong()
		go f.guard(ctx, 5*time.Second, func() {})
		test(f)
	})
}

func (f *lookedFor) isAway() bool {
	ok, _ := f.Reachable()
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
		f.Answered()
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
		f.Answered()
		time.Sleep(time.Second)
		synctest.Wait()
		if f.isAway() || f.lookout.under.Load() {
			t.Error("still looked for")
		}
	})
}

// A connection of feeds that stays silent while new ones work is closed soon; others are abandoned, and requests that
// began before end; one that answers late is not, nor are others when it alone is silent.
func TestDeadConnectionsAreClosed(t *testing.T) {
	waiting := func(f *lookedFor) (context.Context, *Wait) {
		ctx, cancel := context.WithCancelCause(f.Context)
		return ctx, f.Await(cancel, 0)
	}
	t.Run("all", func(t *testing.T) {
		testLookout(t, func(f *lookedFor) {
			old, waits := waiting(f)
			defer waits.Done(old, nil)
			time.Sleep(8 * time.Second)
			if f.closed.Load() {
				t.Fatal("closed while new connections do not work")
			}
			f.answers.Store(true)
			time.Sleep(1200 * time.Millisecond)
			young, waits2 := waiting(f)
			defer waits2.Done(young, nil)
			time.Sleep(2800 * time.Millisecond)
			if !f.closed.Load() || f.abandoned.Load() == 0 || old.Err() == nil {
				t.Errorf("4 s later: closed: %v, abandoned: %d, an old request: %v", f.closed.Load(), f.abandoned.Load(), context.Cause(old))
			}
			if young.Err() != nil {
				t.Errorf("a new request: %v", context.Cause(young))
			}
		})
	})
	t.Run("one", func(t *testing.T) {
		testLookout(t, func(f *lookedFor) {
			f.answers.Store(true)
			old, waits := waiting(f)
			defer waits.Done(old, nil)
			for range 10 {
				time.Sleep(time.Second)
				f.Answered()
			}
			if !f.closed.Load() || f.abandoned.Load() != 0 || old.Err() != nil {
				t.Errorf("closed: %v, abandoned: %d, an old request: %v", f.closed.Load(), f.abandoned.Load(), context.Cause(old))
			}
		})
	})
	t.Run("late", func(t *testing.T) {
		testLookout(t, func(f *lookedFor) {
			time.Sleep(8 * time.Second)
			f.answers.Store(true)
			time.Sleep(Patience - 10*time.Millisecond) // after the answer of the other, or of a probe still later
			f.pong()
			time.Sleep(5 * time.Second)
			if f.closed.Load() {
				t.Error("a connection that answered late was closed")
			}
		})
	})
}

// TestProbesAreNotInTheWay: while bytes come a probe that is under way is waited for.
func TestProbesAreNotInTheWay(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		ask := func(want int32, what string) {
			t.Helper()
			time.Sleep(2 * probePause)
			if f.ask(); f.probes.Load() != want {
				t.Errorf("%s: %d probes", what, f.probes.Load())
			}
		}
		ask(1, "the first one")
		f.Detector.probes.Add(1)
		ask(2, "nothing came since")
		time.Sleep(time.Millisecond)
		f.pong()
		ask(2, "bytes came since")
		f.Detector.probes.Add(-1)
		ask(3, "it is over")
	})
}

// TestOvertaken: a connection that has brought nothing, though one that was opened later has
// answered, is closed, and one that is new, or has brought something, is not.
func TestOvertaken(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		open := func() (closed *atomic.Bool, conn net.Conn) {
			closed = new(atomic.Bool)
			dial := func(context.Context, string, string) (net.Conn, error) { return deadConn{closed: closed}, nil }
			conn, err := f.conns.Dial(dial, new(atomic.Int64), &f.dead)(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			return closed, conn
		}
		before, _ := open()
		works, conn := open()
		conn.(*openConn).heard.Store(true)
		time.Sleep(time.Second)
		f.dead.Prove(time.Now(), time.Now().Add(time.Second))
		after, _ := open()
		time.Sleep(time.Second)
		if before.Load() {
			t.Error("it is closed at once")
		}
		time.Sleep(time.Second)
		if !before.Load() || works.Load() || after.Load() {
			t.Errorf("closed: of before %t, one that works %t, of after %t", before.Load(), works.Load(), after.Load())
		}
	})
}
