package upstream

import (
	"errors"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// rejectWith rejects a request that is not sent.
func (x *forwarding) rejectWith(err error) *api.Response {
	x.end()
	return x.reject(reason.RequestInvalid, err)
}

// failed responds to a request that the upstream did not respond to.
func (x *forwarding) failed(err error) *api.Response {
	x.end()
	x.c.metrics.responded(x.purpose, x.r.Method, 0, 0)
	if x.left() {
		return &api.Response{Status: api.StatusClientLeft}
	}
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return x.reject(reason.RequestInvalid, err)
	case errors.Is(x.upload.err(), os.ErrDeadlineExceeded):
		return x.reject(reason.BodyTimeout, apierrors.NewTimeoutError("the request's body did not arrive in time", 0))
	case x.upload.err() != nil:
		return x.reject(reason.BodyBroken, apierrors.NewBadRequest("the request's body could not be read"))
	case errors.Is(err, health.ErrTimeout):
		return x.reject(reason.UpstreamTimeout, apierrors.NewTimeoutError("the upstream API server did not respond in time"+x.outcome(), 0))
	case errors.Is(err, health.ErrSilent) && x.outcome() != "":
		return x.reject(reason.UpstreamSilent, apierrors.NewTimeoutError(health.ErrSilent.Error()+x.outcome(), 0))
	case errors.Is(err, health.ErrSilent):
		return x.reject(reason.UpstreamSilent, retryLater(health.ErrSilent.Error()))
	case errors.Is(err, health.ErrClosed):
		return x.reject(reason.ShuttingDown, api.NewServiceUnavailable("the gateway is shutting down"+x.outcome()))
	}
	x.c.logFailure(err, x.r)
	const broke = "the connection to the upstream API server broke before it responded"
	switch {
	case x.outcome() != "":
		return x.reject(reason.UpstreamBroke, api.NewServiceUnavailable(broke+x.outcome()))
	case x.sent.Load():
		return x.reject(reason.UpstreamBroke, retryLater(broke))
	}
	return x.reject(reason.UpstreamUnreachable, retryLater("the upstream API server cannot be reached: "+pool.Reason(err)))
}

// retryLater returns the 503 for a request that may be sent again, with Retry-After.
func retryLater(message string) error {
	err := api.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// outcome returns a sentence that the outcome is unknown for a write that was sent, "" for other
// requests.
func (x *forwarding) outcome() string {
	if pool.Safe(x.r.Method) || !x.sent.Load() {
		return ""
	}
	return "; it is not known whether the request was applied"
}

// reject counts a rejection and returns its response.
func (x *forwarding) reject(why reason.Rejection, err error) *api.Response {
	x.c.metrics.rejections.Count(why)
	pretty := x.info.Pretty(x.r.Header.Get("User-Agent"))
	return api.StatusResponse(err, api.NegotiateStatus(x.r.Header.Get("Accept"), pretty))
}

// errorLogPeriod is the shortest interval between two log lines for errors of one kind: while the
// upstream is unreachable, every request fails.
const errorLogPeriod = 10 * time.Second

func (c *Client) logFailure(err error, r *api.Request) {
	c.logs.forward.Do(func() { c.log.Warn("forwarding failed", "method", r.Method, "path", r.Path, "error", err) })
}

// broken responds to a request whose response broke off before any of it was passed on.
func (x *forwarding) broken() *api.Response {
	if pool.Safe(x.r.Method) {
		return x.reject(reason.UpstreamBroke, retryLater("the response of the upstream API server broke off"))
	}
	err := api.NewServiceUnavailable("the response of the upstream API server broke off; the status of the response was " + x.resp.Status)
	err.ErrStatus.Details = &metav1.StatusDetails{Group: x.info.APIGroup, Kind: x.info.Resource, Name: x.info.Name}
	return x.reject(reason.UpstreamBroke, err)
}
