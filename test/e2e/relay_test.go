package e2e

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// A relay forwards connections to a server that may be down for a while, like a Service with
// several replicas: a new connection waits until the server accepts it. Without the relay,
// client-go's waits between attempts, up to a minute, would dominate the duration of tests that
// restart the server.
type relay struct {
	listener net.Listener
	to       []string // a server in each period in turn
	period   time.Duration
	began    time.Time
	bytes    atomic.Int64 // forwarded in both directions
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// startRelay listens on a loopback port until the test ends.
func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	return startMovingRelay(t, 24*time.Hour, to)
}

// startMovingRelay is startRelay for several servers. After each period it closes all connections
// and forwards new ones to the next server.
func startMovingRelay(t *testing.T, period time.Duration, to ...string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{listener: l, to: to, period: period, began: time.Now()}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	t.Cleanup(func() {
		r.stop()
		_ = l.Close()
		r.running.Wait()
	})
	return r
}

func (r *relay) url() string { return "https://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.pass(conn) })
	}
}

// pass connects one connection with the server until either side closes.
func (r *relay) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	var server net.Conn
	for server == nil {
		conn, err := (&net.Dialer{}).DialContext(r.ctx, "tcp", r.to[int(time.Since(r.began)/r.period)%len(r.to)])
		if r.ctx.Err() != nil {
			return
		}
		if err != nil {
			testbed.Wait(r.ctx, testbed.PollPeriod)
			continue
		}
		server = conn
	}
	defer func() { _ = server.Close() }()
	ended := make(chan struct{}, 2)
	join := func(to, from net.Conn) {
		_, _ = io.Copy(to, io.TeeReader(from, r))
		ended <- struct{}{}
	}
	r.running.Go(func() { join(server, client) })
	r.running.Go(func() { join(client, server) })
	move := time.NewTimer(r.period - time.Since(r.began)%r.period)
	defer move.Stop()
	select {
	case <-ended:
	case <-move.C:
	case <-r.ctx.Done():
	}
}

// Write counts forwarded bytes.
func (r *relay) Write(p []byte) (int, error) {
	r.bytes.Add(int64(len(p)))
	return len(p), nil
}
