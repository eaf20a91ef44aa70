package health

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestLag: less than before counts when the feeds had time to take what had come.
func TestLag(t *testing.T) {
	now, measured := time.Unix(1000, 0), time.Duration(0)
	m := &lagMeter{now: func() time.Time { return now }, unanswered: func() time.Duration { return measured }}
	expect := func(after, is, want time.Duration) {
		t.Helper()
		now, measured = now.Add(after), is
		if got := m.current(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(0, 3*time.Millisecond, 3*time.Millisecond) // nothing is late
	expect(0, time.Millisecond, time.Millisecond)
	expect(0, 2*time.Second, 2*time.Second)
	expect(time.Second, 8*time.Second, 8*time.Second)
	expect(time.Second, time.Millisecond, 8*time.Second) // the way is free
	expect(drainTime-1, time.Millisecond, 8*time.Second)
	expect(1, time.Millisecond, time.Millisecond)
	expect(0, 5*time.Second, 5*time.Second)
	expect(0, 3*time.Second, 5*time.Second)
	expect(drainTime, 3*time.Second, 3*time.Second)
	expect(0, 2*time.Second, 3*time.Second)
	expect(drainTime/2, 4*time.Second, 4*time.Second) // late again
	expect(0, 0, 4*time.Second)
	expect(drainTime-1, 0, 4*time.Second)
	expect(1, 0, 0)
}

func TestHeartbeat(t *testing.T) {
	now, sent := time.Unix(1000, 0), []int64(nil) // under way
	requested := 0
	m := &lagMeter{now: func() time.Time { return now }, send: func(at int64) { requested++; sent = append(sent, at) }}
	expect := func(after, want time.Duration, wantRequested int) {
		t.Helper()
		now = now.Add(after)
		if got := m.beat(); got != want || requested != wantRequested {
			t.Errorf("%v after %d requests, want %v after %d", got, requested, want, wantRequested)
		}
	}
	end := func(responded bool) {
		m.returned(sent[0], responded)
		sent = sent[1:]
	}
	expect(0, 0, 1)
	expect(heartbeatPeriod/2, heartbeatPeriod/2, 1) // no answer yet
	expect(20*time.Second, 20500*time.Millisecond, 1)
	end(true)
	expect(0, 20500*time.Millisecond, 2)
	now = now.Add(time.Millisecond)
	end(true)
	expect(0, time.Millisecond, 2)
	expect(4*time.Second, time.Millisecond, 3)
	end(false)
	expect(0, time.Millisecond, 3)
	expect(time.Hour, 0, 4) // what was an hour ago says nothing
	expect(time.Hour, time.Hour, 4)
}

// TestHeartbeatFails: what was measured before all measurements failed is forgotten.
func TestHeartbeatFails(t *testing.T) {
	now := time.Unix(1000, 0)
	responded := true
	m := &lagMeter{now: func() time.Time { return now }}
	m.send = func(sent int64) {
		if responded {
			now = now.Add(5 * time.Second)
		}
		m.returned(sent, responded)
	}
	if got := m.beat(); got != 5*time.Second {
		t.Errorf("%v", got)
	}
	responded = false
	for range 20 {
		now = now.Add(heartbeatPeriod)
		m.beat()
	}
	if got := m.beat(); got != 0 {
		t.Errorf("%v, of long ago", got)
	}
}

// TestHeartbeatContinues while there are feeds, although nobody wants to know.
func TestHeartbeatContinues(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var requested atomic.Int32
		var lost atomic.Bool
		d := New(Options{PingInterval: 5 * time.Second, Background: Background{Context: ctx}})
		d.lag.send = func(sent int64) {
			requested.Add(1)
			if !lost.Load() {
				d.lag.returned(sent, true)
			}
		}
		go d.monitor()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := requested.Load(); n != 0 {
			t.Errorf("asked %d times without feeds", n)
		}
		defer d.conns.Watch(open(t, d, fakeConn{}, true), false)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := requested.Load(); n < 11 || n > 12 {
			t.Errorf("asked %d times in a minute", n)
		}
		lost.Store(true)
		time.Sleep(20 * time.Second)
		if d.lag.rtt() < 15*time.Second {
			t.Errorf("measured %v", d.lag.rtt())
		}
	})
}

// TestHeartbeatOpensNoConnection while the upstream is silent: the reflectors would wait for it.
func TestHeartbeatOpensNoConnection(t *testing.T) {
	testBench(t, func(b *bench) {
		time.Sleep(16 * time.Second) // silence
		b.endWatch()
		synctest.Wait()
		before := b.heartbeats.Load()
		time.Sleep(heartbeatPeriod)
		b.Lag()
		synctest.Wait()
		if n := b.heartbeats.Load() - before; !b.isSilent() || n != 0 {
			t.Errorf("%d heartbeats without a feed connection", n)
		}
		b.responses.Store(true)
		time.Sleep(heartbeatPeriod)
		b.Lag()
		synctest.Wait()
		if n := b.heartbeats.Load() - before; n != 1 {
			t.Errorf("%d heartbeats to an upstream that responds", n)
		}
	})
}
