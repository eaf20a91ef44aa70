package health

import (
	"net"
	"testing"
	"time"
)

// TestQuietOverHTTP1: a watch that nothing pings may be quiet, while new connections work.
func TestQuietOverHTTP1(t *testing.T) {
	testLookout(t, func(f *lookedFor) {
		f.answers.Store(true)
		f.feed.pings.Store(false)
		time.Sleep(time.Hour)
		if f.closed.Load() || f.abandoned.Load() != 0 {
			t.Errorf("closed: %v, abandoned: %d", f.closed.Load(), f.abandoned.Load())
		}
	})
}

// TestOldestContactCounts: one lively connection must not hide a dead one.
func TestOldestContactCounts(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newFeeds(func() time.Time { return now })
	one, two := c.Track(nil)(&readable{}).(*FeedConn), c.Track(nil)(&readable{}).(*FeedConn)
	read := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }
	endOne, endTwo, endThree := c.Begin(one, true, new(Reads)), c.Begin(two, true, new(Reads)), c.Begin(two, true, new(Reads))
	read(one)
	now = now.Add(time.Second)
	read(two)
	if got := c.Oldest(); got != time.Unix(1000, 0).UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endOne()
	if got := c.Oldest(); got != now.UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endTwo()
	now = now.Add(time.Second)
	read(one) // carries no watch
	if got := c.Oldest(); got != now.Add(-time.Second).UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endThree()
	if got := c.Oldest(); got != now.UnixNano() || c.Connections() != 0 {
		t.Errorf("oldest %d of %d", got, c.Connections())
	}
	c.Begin(nil, true, new(Reads))()
}

// TestUnansweredPing: what does not come through one of several connections is late, as soon
// as its ping is.
func TestUnansweredPing(t *testing.T) {
	const pings = 5 * time.Second
	now := time.Unix(1000, 0)
	c := newFeeds(func() time.Time { return now })
	var all [3]*FeedConn
	for i := range all {
		all[i] = c.Track(nil)(&readable{}).(*FeedConn)
		defer c.Begin(all[i], i < 2, new(Reads))() // the third is not pinged
		_, _ = all[i].Read(make([]byte, 1))
	}
	expect := func(after, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		_, _ = all[0].Read(make([]byte, 1))
		c.look(pings)
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

type readable struct{ net.Conn }

func (*readable) Read(p []byte) (int, error) { return len(p), nil }
