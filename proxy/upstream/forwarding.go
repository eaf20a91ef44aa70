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
	c       *Client
	r       *api.Request
	cred    *Credentials
	info    *api.RequestInfo
	purpose purpose
	// longRunning requests may take as long as they like.
	longRunning bool
	direct      bool // on a connection of its own
	shared      bool // on one that others share

	client context.Context // the client's
	// ctx is that of the request upstream. It ends with the client's context, watchAfter
	// later at most, until detach, and with the Client's.
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func()
	unlink func() bool

	upload *upload // nil without a body
	// sent is true once the request has a connection, which it may leave by at any moment,
	// unless it surely was not processed, reused when that had carried another request.
	sent, reused atomic.Bool
	sends        *pool.SendLimit // to a single server, else nil
	once         sync.Once       // end
	resp         *http.Response
}

func (c *Client) newForwarding(ctx context.Context, r *api.Request, cred *Credentials) *forwarding {
	x := &forwarding{c: c, r: r, info: r.Info(), cred: cred, client: ctx, purpose: cred.purpose(), sends: c.sends()}
	x.longRunning = x.info.LongRunning()
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.detach = whenLeft(ctx, func() { x.cancel(context.Cause(ctx)) })
	x.unlink = context.AfterFunc(c.ctx, func() { x.cancel(health.ErrClosed) })
	return x
}

// end gives everything up. It may be called more than once and at any time.
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

// broke counts a response that ended before its end.
func (x *forwarding) broke(err error) error {
	x.c.metrics.broken.WithLabelValues(string(x.purpose)).Inc()
	return fmt.Errorf("response of the upstream: %w", err)
}

// left reports whether the client has.
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

// watchAfter is how long a request takes before its client's leaving is watched for.
// Over HTTP/1.1 that takes goroutines that read ahead and are called back, more than
// most requests cost here, and most are answered before a client could leave.
const watchAfter = 10 * time.Millisecond

// leaving waits for a client to leave.
type leaving struct {
	timer *time.Timer

	mu   sync.Mutex
	over bool
	stop func() bool // once it is watched for
}

// whenLeft calls f, in a goroutine of its own, if the client whose context is ctx
// leaves before stop is called, or left within watchAfter.
func whenLeft(ctx context.Context, f func()) (stop func()) {
	l := &leaving{}
	l.timer = time.AfterFunc(watchAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			l.stop = context.AfterFunc(ctx, f)
		}
	})
	return l.end
}

func (l *leaving) end() {
	l.timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.stop != nil {
		l.stop()
	}
}
