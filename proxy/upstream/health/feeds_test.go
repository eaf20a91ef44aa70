package health

import (
	"net"
	"testing"
	"time"
)

// TestQuietOverHTTP1: a watch that nothing pings may be quiet, while new connections work.
func TestQuietOverHTTP1(t *testing.T) {
	testBench(t, func(b *bench) {
		b.responses.Store(true)
		b.feed.pings.Store(false)
		time.Sleep(time.Hour)
		if b.closed.Load() || b.abandoned.Load() != 0 {
			t.Errorf("closed: %v, abandoned: %d", b.closed.Load(), b.abandoned.Load())
		}
	})
}

// TestOldestContactCounts: one lively connection must not hide a dead one.
func TestOldestContactCounts(t *testing.T) {
	now := time.Unix(1000, 0)
	d := detector(time.Second, func() time.Time { return now })
	c := d.conns
	one, two := open(t, d, fakeConn{}, true), open(t, d, fakeConn{}, true)
	read := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }
	endOne, endTwo, endThree := c.Watch(one, true), c.Watch(two, true), c.Watch(two, true)
	read(one)
	now = now.Add(time.Second)
	read(two)
	if got := c.LastContact(); !got.Equal(time.Unix(1000, 0)) {
		t.Errorf("oldest %v", got)
	}
	endOne()
	if got := c.LastContact(); !got.Equal(now) {
		t.Errorf("oldest %v", got)
	}
	endTwo()
	now = now.Add(time.Second)
	read(one) // carries no watch
	if got := c.LastContact(); !got.Equal(now.Add(-time.Second)) {
		t.Errorf("oldest %v", got)
	}
	endThree()
	if got := c.LastContact(); !got.Equal(now) || c.Feeds() != 0 {
		t.Errorf("oldest %v of %d", got, c.Feeds())
	}
	c.Watch(nil, true)()
}

// TestUnansweredPing: what does not come through one of several connections is late, as soon
// as its ping is.
func TestUnansweredPing(t *testing.T) {
	const pings = 5 * time.Second
	now := time.Unix(1000, 0)
	d := detector(pings, func() time.Time { return now })
	c := d.conns
	var all [3]*Conn
	for i := range all {
		all[i] = open(t, d, fakeConn{}, true)
		defer c.Watch(all[i], i < 2)() // the third is not pinged
		_, _ = all[i].Read(make([]byte, 1))
	}
	expect := func(after, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		_, _ = all[0].Read(make([]byte, 1))
		if got := c.unanswered(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(pings, 0)
	expect(2*time.Second, 2*time.Second)
	expect(time.Second, 3*time.Second)
	_, _ = all[1].Read(make([]byte, 1))
	expect(time.Second, 0)
	expect(time.Hour, time.Hour+time.Second-pings)
	_, _ = all[1].Read(make([]byte, 1))
	if got := c.unanswered(); got != 0 {
		t.Errorf("%v for a ping that was answered since", got)
	}
}
