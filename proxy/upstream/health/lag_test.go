package health

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestLag: less than before counts when the feeds have taken what had come.
func TestLag(t *testing.T) {
	now, measured, taken := time.Unix(1000, 0), time.Duration(0), true
	l := &lag{
		now: func() time.Time { return now }, measured: func() time.Duration { return measured }, taken: func(int64) bool { return taken },
	}
	expect := func(after, is, want time.Duration) {
		t.Helper()
		now, measured = now.Add(after), is
		if got := l.delay(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(0, 3*time.Millisecond, 3*time.Millisecond) // nothing is late
	expect(0, time.Millisecond, time.Millisecond)
	expect(0, 2*time.Second, 2*time.Second)
	expect(time.Second, 8*time.Second, 8*time.Second)
	taken = false
	expect(time.Second, time.Millisecond, 8*time.Second) // the way is free
	expect(2*time.Second, time.Millisecond, 8*time.Second)
	taken = true
	expect(0, time.Millisecond, time.Millisecond)
	expect(0, 5*time.Second, 5*time.Second)
	expect(0, 3*time.Second, 5*time.Second) // the feeds have a moment at least
	expect(settleTime-1, 3*time.Second, 5*time.Second)
	expect(1, 3*time.Second, 3*time.Second)
	taken = false
	expect(0, 2*time.Second, 3*time.Second)
	expect(time.Second, 4*time.Second, 4*time.Second) // late again
	expect(0, 0, 4*time.Second)
	expect(4*time.Second-1, 0, 4*time.Second)
	expect(1, 0, 0) // a feed that is behind for longer is so by itself
}

// heldConn is a connection to which bytes come.
type heldConn struct {
	net.Conn
	bytes chan struct{}
}

func (c *heldConn) Read(p []byte) (int, error) {
	<-c.bytes
	return 1, nil
}

// TestTaken: what has come is taken when there is nothing more to be read from the
// connection, and from each watch on it.
func TestTaken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const pings = 5 * time.Second
		c := newFeeds(time.Now)
		raw := &heldConn{bytes: make(chan struct{}, 10)}
		conn := c.Track(nil)(raw).(*FeedConn)
		var one, two Reads
		endOne, endTwo := c.Begin(conn, true, &one), c.Begin(conn, true, &two)
		begin := func(w *Reads) { w.begin(time.Now().UnixNano()) }
		end := func(w *Reads) { w.end(time.Now().UnixNano()) }
		expect := func(what string, since time.Time, want bool) {
			t.Helper()
			if got := c.taken(since.UnixNano(), pings); got != want {
				t.Errorf("%s: %t", what, got)
			}
		}
		begin(&one)
		begin(&two)
		came := time.Now()
		expect("nothing was heard", came, false)
		raw.bytes <- struct{}{}
		_, _ = conn.Read(nil)
		expect("the connection may have more", came, false)
		go func() {
			for {
				if _, err := conn.Read(nil); err != nil || len(raw.bytes) == 0 && raw.Conn != nil {
					return
				}
			}
		}()
		time.Sleep(idleTime)
		expect("all wait", came, true)
		end(&one)
		came = time.Now()
		expect("one works", came, false)
		begin(&one)
		expect("one reads on", came, false)
		time.Sleep(idleTime)
		expect("one waits again", came, true)
		end(&two)
		expect("two had nothing before", came, true)
		came = time.Now()
		expect("two works", came, false)
		endTwo()
		expect("two has ended", came, true)
		raw.bytes <- struct{}{}
		synctest.Wait()
		time.Sleep(pings * 3 / 2)
		expect("pings are due", time.Now(), true)
		time.Sleep(time.Nanosecond)
		expect("pings stay away", time.Now(), false)
		endOne()
		expect("there are no watches", time.Now(), true)
		raw.Conn = raw
		raw.bytes <- struct{}{}
		synctest.Wait()
	})
}
