package health

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestHeartbeat(t *testing.T) {
	now, sent := time.Unix(1000, 0), []int64(nil) // under way
	asked := 0
	p := &Heartbeat{now: func() time.Time { return now }, ask: func(at int64) { asked++; sent = append(sent, at) }}
	expect := func(after, want time.Duration, wantAsked int) {
		t.Helper()
		now = now.Add(after)
		if got := p.delay(); got != want || asked != wantAsked {
			t.Errorf("%v after %d requests, want %v after %d", got, asked, want, wantAsked)
		}
	}
	end := func(answered bool) {
		p.ended(sent[0], answered)
		sent = sent[1:]
	}
	expect(0, 0, 1)
	expect(pulsePeriod/2, pulsePeriod/2, 1)           // no answer yet
	expect(20*time.Second, 20500*time.Millisecond, 2) // others follow
	expect(time.Second, 21500*time.Millisecond, 2)
	expect(2*time.Second, 23500*time.Millisecond, 3)
	now = now.Add(5500 * time.Millisecond)
	end(true)
	expect(0, 29*time.Second, 4)
	end(true)
	now = now.Add(time.Millisecond)
	end(true)
	expect(0, 5501*time.Millisecond, 4) // which the third of them took
	end(true)
	expect(0, time.Millisecond, 4)
	expect(4*time.Second, time.Millisecond, 5)
	end(false)
	expect(0, time.Millisecond, 5)
	expect(time.Hour, 0, 6) // what was an hour ago says nothing
	expect(time.Hour, time.Hour, 7)
	for range 2 * maxPulses {
		now = now.Add(time.Hour)
		p.delay()
	}
	if len(sent) != maxPulses {
		t.Errorf("%d requests are under way, %d may be", len(sent), maxPulses)
	}
}

// TestHeartbeatFails: what was measured before all measurements failed is forgotten.
func TestHeartbeatFails(t *testing.T) {
	now := time.Unix(1000, 0)
	var p *Heartbeat
	answered := true
	p = &Heartbeat{now: func() time.Time { return now }}
	p.ask = func(sent int64) {
		if answered {
			now = now.Add(5 * time.Second)
		}
		p.ended(sent, answered)
	}
	if got := p.delay(); got != 5*time.Second {
		t.Errorf("%v", got)
	}
	answered = false
	for range 20 {
		now = now.Add(pulsePeriod)
		p.delay()
	}
	if got := p.delay(); got != 0 {
		t.Errorf("%v, of long ago", got)
	}
}

// TestHeartbeatIsKept while there are feeds, although nobody wants to know.
func TestHeartbeatIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		contacts := newFeeds(time.Now)
		var asked atomic.Int32
		var lost atomic.Bool
		p := &Heartbeat{now: time.Now}
		p.ask = func(sent int64) {
			asked.Add(1)
			if !lost.Load() {
				p.ended(sent, true)
			}
		}
		go p.keep(ctx, contacts)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := asked.Load(); n != 0 {
			t.Errorf("asked %d times without feeds", n)
		}
		defer contacts.Begin(contacts.Track(nil)(nil).(*FeedConn), true, new(Reads))()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := asked.Load(); n < 11 || n > 12 {
			t.Errorf("asked %d times in a minute", n)
		}
		lost.Store(true)
		time.Sleep(20 * time.Second)
		if p.measured() < 15*time.Second {
			t.Errorf("measured %v", p.measured())
		}
	})
}
