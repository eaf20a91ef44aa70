package upstream

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
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
	// ctx is the context of the request to the upstream. It ends with the client's context until
	// detach, and with the Client.
	ctx            context.Context
	cancel         context.CancelCauseFunc
	detach, unlink func() bool
	once           sync.Once // end
}

// delivery is how far a forwarded request has come.
type delivery struct {
	// sent is true once the request has a connection, on which it may leave at any moment, unless it
	// certainly was not processed. reused is true if that carried another request before.
	sent, reused atomic.Bool
}

func (c *Client) newForwarding(ctx context.Context, r *api.Request, cred *Credentials) *forwarding {
	x := &forwarding{c: c, r: r, info: r.Info(), cred: cred, purpose: cred.purpose()}
	x.client = ctx
	x.longRunning = x.info.LongRunning()
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.detach = context.AfterFunc(ctx, func() { x.cancel(context.Cause(ctx)) })
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
