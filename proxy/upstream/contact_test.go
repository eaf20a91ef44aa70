package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
)

// quietWatch is a server's watch that says nothing after its head.
func quietWatch(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// startWatch watches pods in the background; accepted says that the head came, and
// the result is sent on ended.
func startWatch(ctx context.Context, src *Source) (accepted chan struct{}, ended chan error) {
	accepted, ended = make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- src.Watch(ctx, pods(), api.JSON, source.WatchOptions{ResourceVersion: 1}, func(e source.Event) error {
			if e.Type == source.WatchAccepted {
				close(accepted)
			}
			return nil
		})
	}()
	return accepted, ended
}

// pausable is a listener whose connections can be made to fall silent without
// breaking, as when the other machine has lost its power.
type pausable struct {
	net.Listener
	mu     sync.Mutex
	resume chan struct{} // not nil while paused
}

type pausableConn struct {
	net.Conn
	l *pausable
}

func (l *pausable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return pausableConn{conn, l}, nil
}

func (l *pausable) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = make(chan struct{})
}

func (l *pausable) unpause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.resume)
	l.resume = nil
}

func (c pausableConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	resume := c.l.resume
	c.l.mu.Unlock()
	if resume != nil {
		<-resume
	}
	return c.Conn.Write(p)
}

func pausing(l *pausable) serverOption {
	return func(s *httptest.Server) { l.Listener, s.Listener = s.Listener, l }
}

// TestPingsKeepContact: on a watch without a word, the answers to pings move
// LastContact; when they stay away, the watch ends.
func TestPingsKeepContact(t *testing.T) {
	var l pausable
	s := newServer(t, quietWatch, pausing(&l))
	c := s.client(t, func(o *Options) {
		o.Limits.PingInterval, o.Limits.PingTimeout = 20*time.Millisecond, time.Second
	})
	source := c.Source()
	accepted, ended := startWatch(testContext(t), source)
	within(t, accepted, "the watch")
	if c.contacts.connections() != 1 {
		t.Errorf("%d connections carry watches", c.contacts.connections())
	}
	for range 3 {
		last := source.LastContact()
		deadline := time.Now().Add(10 * time.Second)
		for source.LastContact().Equal(last) {
			if time.Now().After(deadline) {
				t.Fatal("no sign of life is seen")
			}
			time.Sleep(time.Millisecond)
		}
	}
	l.pause()
	defer l.unpause()
	if err := within(t, ended, "the end of a dead watch"); err == nil {
		t.Error("a dead watch ends as if the server had ended it")
	}
	if c.contacts.connections() != 0 {
		t.Error("the dead connection still counts")
	}
}

// TestSilenceOverHTTP1: without pings, only silence tells. See TestGuardedBody for
// when it does.
func TestSilenceOverHTTP1(t *testing.T) {
	s := newServer(t, quietWatch, http1Only)
	c := s.client(t, func(o *Options) { o.Limits.FeedReadTimeout = 50 * time.Millisecond })
	accepted, ended := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
	if err := within(t, ended, "the end of a silent watch"); !errors.Is(err, errStalled) {
		t.Errorf("%v", err)
	}
}

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
	c := newContacts(func() time.Time { return now })
	one, two := c.track(nil)(&readable{}).(*feedConn), c.track(nil)(&readable{}).(*feedConn)
	read := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }
	endOne, endTwo, endThree := c.begin(one, true, new(waits)), c.begin(two, true, new(waits)), c.begin(two, true, new(waits))
	read(one)
	now = now.Add(time.Second)
	read(two)
	if got := c.oldest(); got != time.Unix(1000, 0).UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endOne()
	if got := c.oldest(); got != now.UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endTwo()
	now = now.Add(time.Second)
	read(one) // carries no watch
	if got := c.oldest(); got != now.Add(-time.Second).UnixNano() {
		t.Errorf("oldest %d", got)
	}
	endThree()
	if got := c.oldest(); got != now.UnixNano() || c.connections() != 0 {
		t.Errorf("oldest %d of %d", got, c.connections())
	}
	c.begin(nil, true, new(waits))()
}

// TestUnansweredPing: what does not come through one of several connections is late, as soon
// as its ping is.
func TestUnansweredPing(t *testing.T) {
	const pings = 5 * time.Second
	now := time.Unix(1000, 0)
	c := newContacts(func() time.Time { return now })
	var all [3]*feedConn
	for i := range all {
		all[i] = c.track(nil)(&readable{}).(*feedConn)
		defer c.begin(all[i], i < 2, new(waits))() // the third is not pinged
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

// TestFeedsSpread: more watches than one connection may carry take several.
func TestFeedsSpread(t *testing.T) {
	const watches, streams = 25, 10
	var connections atomic.Int64
	s := newServer(t, quietWatch, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	})
	source := s.client(t).Source()
	ctx, cancel := context.WithCancel(testContext(t))
	var all []chan error
	for range watches {
		accepted, ended := startWatch(ctx, source)
		within(t, accepted, "a watch")
		all = append(all, ended)
	}
	if n := connections.Load(); n < 3 || n > 4 {
		t.Errorf("%d watches take %d connections", watches, n)
	}
	cancel()
	for _, ended := range all {
		within(t, ended, "the end of a watch")
	}
}
