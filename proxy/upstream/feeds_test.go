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

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
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
	if c.health.Conns().Feeds() != 1 {
		t.Errorf("%d connections carry watches", c.health.Conns().Feeds())
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
	if c.health.Conns().Feeds() != 0 {
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
	if err := within(t, ended, "the end of a silent watch"); !errors.Is(err, health.ErrStalled) {
		t.Errorf("%v", err)
	}
}

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
