package health

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// bench is a Detector whose probes end as a test says, in a bubble of fake time.
type bench struct {
	*Detector
	feed     *Conn
	endWatch func() // of feed
	probes   atomic.Int32
	// responses and refuses determine how a probe ends at once; without either it hangs.
	responses, rejects atomic.Bool
	// closed is whether the feed connection was closed, abandoned how often the others
	// were.
	closed     atomic.Bool
	abandoned  atomic.Int32
	heartbeats atomic.Int32
}

// fakeConn is a connection that can be closed, and brings as much as is asked for.
type fakeConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c fakeConn) Close() error {
	c.closed.Store(true)
	return nil
}

func (fakeConn) Read(p []byte) (int, error) { return len(p), nil }

// detector returns one with a clock that a test sets.
func detector(pings time.Duration, now func() time.Time) *Detector {
	d := New(Options{PingInterval: pings, Background: Background{Log: slog.New(slog.DiscardHandler), Spawn: func(func()) bool { return false }}})
	d.now, d.lag.now, d.conns.now = now, now, now
	return d
}

// open opens a feed connection, or another one, on which nothing has come yet.
func open(t *testing.T, d *Detector, conn net.Conn, feed bool) *Conn {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	opened, err := d.conns.Dial(dial, &d.server, new(atomic.Int64), feed)(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	return opened.(*Conn)
}

// testBench runs a test with an upstream that is Silent after 10 s, and whose
// feeds are pinged every 5 s.
func testBench(t *testing.T, test func(*bench)) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &bench{}
		b.Detector = New(Options{
			SilenceTimeout: 10 * time.Second, PingInterval: 5 * time.Second,
			Background: Background{Context: ctx, Spawn: func(f func()) bool { go f(); return true }, Log: slog.New(slog.DiscardHandler)},
			Abandon:    func() { b.abandoned.Add(1) },
			Heartbeat:  func(context.Context) error { b.heartbeats.Add(1); return nil },
			Probe: func() {
				b.probes.Add(1)
				switch {
				case b.responses.Load():
					b.server.ProbeResponded(time.Now(), time.Now())
					b.Responded()
				case b.rejects.Load():
					b.probeFailed(time.Now())
				}
			},
		})
		b.feed = open(t, b.Detector, fakeConn{closed: &b.closed}, true)
		b.endWatch = sync.OnceFunc(b.conns.Watch(b.feed, true))
		defer b.endWatch()
		b.pong()
		go b.monitor()
		test(b)
	})
}

func (b *bench) isAway() bool {
	ok, _ := b.Detector.Reachable()
	return !ok
}

func (b *bench) isSilent() bool { return b.Admit() != nil }

// pong is a sign of life on the feed connection.
func (b *bench) pong() { _, _ = b.feed.Read(make([]byte, 1)) }

func TestGoneIsDetectedWithoutRequests(t *testing.T) {
	testBench(t, func(b *bench) {
		for range 100 { // all is well
			time.Sleep(5 * time.Second)
			b.pong()
		}
		if n := b.probes.Load(); n != 0 {
			t.Errorf("%d probes of an upstream that answers pings", n)
		}
		time.Sleep(16 * time.Second) // a ping, and then silence
		if !b.isAway() || !b.isSilent() {
			t.Fatal("a silent upstream is not known to be gone")
		}
		time.Sleep(time.Hour)
		b.responses.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if b.isAway() || b.isSilent() {
			t.Fatal("it is not known to be back after a second")
		}
		before := b.probes.Load()
		b.pong()
		time.Sleep(5 * time.Second)
		if n := b.probes.Load(); n != before {
			t.Errorf("%d probes of an upstream that is back", n-before)
		}
	})
}

func TestAnUpstreamThatRejectsIsAwayAndTried(t *testing.T) {
	testBench(t, func(b *bench) {
		b.rejects.Store(true)
		b.suspect(time.Now())
		time.Sleep(time.Second)
		if !b.isAway() {
			t.Error("not away")
		}
		time.Sleep(time.Minute)
		if b.isSilent() || !b.isAway() {
			t.Errorf("gone: %v, away: %v; requests find out as soon as probes", b.isSilent(), b.isAway())
		}
		b.Responded()
		if b.isAway() {
			t.Error("away after an answer")
		}
	})
}

// TestOneBadProbeIsNothing: there may be a balancer with one bad server.
func TestOneBadProbeIsNothing(t *testing.T) {
	testBench(t, func(b *bench) {
		b.rejects.Store(true)
		b.suspect(time.Now())
		synctest.Wait()
		if b.isAway() {
			t.Error("away after one probe")
		}
		time.Sleep(time.Millisecond)
		b.Responded()
		time.Sleep(time.Second)
		synctest.Wait()
		if b.isAway() || b.prober.running.Load() {
			t.Error("still looked for")
		}
	})
}

// TestDeadConnectionsAreClosed: a feed connection that stays silent while new ones work is closed
// soon; others are abandoned, and requests that began before end. A connection that responds late
// is not closed, nor are others when it alone is silent.
func TestDeadConnectionsAreClosed(t *testing.T) {
	waiting := func(b *bench) (context.Context, *Wait) {
		ctx, cancel := context.WithCancelCause(b.opts.Context)
		return ctx, b.Await(cancel, 0)
	}
	t.Run("all", func(t *testing.T) {
		testBench(t, func(b *bench) {
			old, waits := waiting(b)
			defer waits.Done(old, nil)
			time.Sleep(8 * time.Second)
			if b.closed.Load() {
				t.Fatal("closed while new connections do not work")
			}
			b.responses.Store(true)
			time.Sleep(1200 * time.Millisecond)
			young, waits2 := waiting(b)
			defer waits2.Done(young, nil)
			time.Sleep(2800 * time.Millisecond)
			if !b.closed.Load() || b.abandoned.Load() == 0 || old.Err() == nil {
				t.Errorf("4 s later: closed: %v, abandoned: %d, an old request: %v", b.closed.Load(), b.abandoned.Load(), context.Cause(old))
			}
			if young.Err() != nil {
				t.Errorf("a new request: %v", context.Cause(young))
			}
		})
	})
	t.Run("one", func(t *testing.T) {
		testBench(t, func(b *bench) {
			b.responses.Store(true)
			old, waits := waiting(b)
			defer waits.Done(old, nil)
			for range 10 {
				time.Sleep(time.Second)
				b.Responded()
			}
			if !b.closed.Load() || b.abandoned.Load() != 0 || old.Err() != nil {
				t.Errorf("closed: %v, abandoned: %d, an old request: %v", b.closed.Load(), b.abandoned.Load(), context.Cause(old))
			}
		})
	})
	t.Run("late", func(t *testing.T) {
		testBench(t, func(b *bench) {
			time.Sleep(8 * time.Second)
			b.responses.Store(true)
			time.Sleep(Grace - 10*time.Millisecond) // after the answer of the other, or of a probe still later
			b.pong()
			time.Sleep(5 * time.Second)
			if b.closed.Load() {
				t.Error("a connection that answered late was closed")
			}
		})
	})
}

// TestProbesAreNotInTheWay: while bytes come a probe that is under way is waited for.
func TestProbesAreNotInTheWay(t *testing.T) {
	testBench(t, func(b *bench) {
		request := func(want int32, what string) {
			t.Helper()
			time.Sleep(2 * probePause)
			if b.probe(); b.probes.Load() != want {
				t.Errorf("%s: %d probes", what, b.probes.Load())
			}
		}
		request(1, "the first one")
		b.prober.inFlight.Add(1)
		request(2, "nothing came since")
		time.Sleep(time.Millisecond)
		b.pong()
		request(2, "bytes came since")
		b.prober.inFlight.Add(-1)
		request(3, "it is over")
	})
}
