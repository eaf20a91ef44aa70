package health

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestBytesKeepConnections: a connection that is pinged lives while it brings bytes, and ends
// when it has brought none for as long as a ping and its answer may take.
func TestBytesKeepConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }()
		c := open(t, detector(0, time.Now), near, false)
		c.limitPings(15 * time.Second)
		go func() {
			for range 10 {
				time.Sleep(14 * time.Second)
				_, _ = far.Write([]byte{0})
			}
		}()
		began := time.Now()
		var err error
		for err == nil {
			_, err = c.Read(make([]byte, 10))
		}
		if took := time.Since(began); !errors.Is(err, errPingTimeout) || took != 155*time.Second {
			t.Errorf("ended after %s: %v", took, err)
		}
	})
}

// TestConnsClose: closed connections are not remembered, and none is opened any more.
func TestConnsClose(t *testing.T) {
	conns, open, closed := detector(0, time.Now).conns, new(atomic.Int64), new(atomic.Bool)
	dial := conns.Dial(func(context.Context, string, string) (net.Conn, error) { return fakeConn{closed: closed}, nil }, nil, open, false)
	if _, err := dial(t.Context(), "tcp", ""); err != nil || open.Load() != 1 {
		t.Fatal(open.Load(), err)
	}
	conns.Close()
	if !closed.Load() || len(conns.all) > 0 {
		t.Errorf("closed %v, %d connections are remembered", closed.Load(), len(conns.all))
	}
	closed.Store(false)
	if _, err := dial(t.Context(), "tcp", ""); !errors.Is(err, ErrClosed) || !closed.Load() {
		t.Errorf("closed connections take another: %v", err)
	}
}
