package upstream

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// forwarding is one forwarded request and its response.
type forwarding struct {
	c           *Client
	r           *api.Request
	cred        *Credentials
	info        *api.RequestInfo
	purpose     purpose
	longRunning bool // the request may take as long as it likes
	direct      bool // it has an HTTP/1.1 connection of its own
	shared      bool // it shares an HTTP/2 connection

	lifetime
	delivery
	upload *upload // nil without a body
	resp   *http.Response
}

// lifetime is how long a forwarded request lasts.
type lifetime struct {
	client context.Context // the client's
	// ctx is that of the request upstream. It ends with the client's context (watchAfter later at
	// most) until detach, and with the Client.
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func()
	unlink func() bool
	once   sync.Once // end
}

// delivery is how far a forwarded request has come.
type delivery struct {
	// sent is true once the request has a connection, on which it may leave at any moment, unless it
	// certainly was not processed. reused is true if that carried another request before.
	sent, reused atomic.Bool
	sends        *pool.SendLimit // to a single server, else nil
}

func (c *Client) newForwarding(ctx context.Context, r *api.Request, cred *Credentials) *forwarding {
	x := &forwarding{c: c, r: r, info: r.Info(), cred: cred, purpose: cred.purpose()}
	x.client, x.sends = ctx, c.sends()
	x.longRunning = x.info.LongRunning()
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.detach = afterClient(ctx, func() { x.cancel(context.Cause(ctx)) })
	x.unlink = context.AfterFunc(c.ctx, func() { x.cancel(health.ErrClosed) })
	return x
}

// end releases everything. It may be called more than once and at any time.
func (x *forwarding) end() {
	x.once.Do(func() {
		x.detach()
		x.unlink()
		x.cancel(nil)
		if x.direct {
			x.c.direct.Add(-1)
		}
		if x.shared {
			x.c.shared.Add(-1)
		}
		if x.upload != nil {
			x.upload.over.Store(true)
		}
		if x.resp != nil {
			_ = x.resp.Body.Close()
		}
	})
}

// broke counts a response that broke off.
func (x *forwarding) broke(err error) error {
	x.c.metrics.broken.WithLabelValues(string(x.purpose)).Inc()
	return fmt.Errorf("response of the upstream: %w", err)
}

// left reports whether the client has left.
func (x *forwarding) left() bool { return x.client.Err() != nil }

func (c *Credentials) purpose() purpose {
	switch {
	case c.As == AsGateway && c.KeepImpersonation:
		return forIdentity
	case c.As == AsGateway:
		return forOwn
	}
	return forClient
}

// watchAfter is how long a request takes before its client is watched. Over HTTP/1.1 that takes
// goroutines that read ahead and are called back, which costs more than most requests do here, and
// most are responded to before a client could leave.
const watchAfter = 10 * time.Millisecond

// clientWatch waits for a client to leave.
type clientWatch struct {
	timer *time.Timer

	mu   sync.Mutex
	over bool        // guarded by mu
	stop func() bool // guarded by mu: set while the client is watched
}

// afterClient calls f, in a goroutine of its own, if the client whose context is ctx leaves before
// stop is called, or left within watchAfter.
func afterClient(ctx context.Context, f func()) (stop func()) {
	w := &clientWatch{}
	w.timer = time.AfterFunc(watchAfter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			w.stop = context.AfterFunc(ctx, f)
		}
	})
	return w.end
}

func (w *clientWatch) end() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.stop != nil {
		w.stop()
	}
}
