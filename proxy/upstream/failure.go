package upstream

import (
	"errors"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
	"github.com/kubeweir/kubeweir/reason"
)

// refuse answers a request that is not sent.
func (x *forwarding) refuse(err error) *api.Response {
	x.end()
	var malformed *headerError
	if errors.As(err, &malformed) {
		err = apierrors.NewBadRequest(err.Error())
	}
	return x.refused(reason.RequestInvalid, err)
}

// failed answers a request that the upstream did not.
func (x *forwarding) failed(err error) *api.Response {
	x.end()
	x.c.metrics.answered(x.purpose, x.r.Method, 0, 0)
	if x.left() {
		return &api.Response{Status: api.StatusClientLeft}
	}
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return x.refused(reason.RequestInvalid, err)
	case errors.Is(x.upload.err(), os.ErrDeadlineExceeded):
		return x.refused(reason.BodyTimeout, apierrors.NewTimeoutError("the request's body did not come in time", 0))
	case x.upload.err() != nil:
		return x.refused(reason.BodyBroken, apierrors.NewBadRequest("the request's body could not be read"))
	case errors.Is(err, health.ErrTimeout):
		return x.refused(reason.UpstreamTimeout, apierrors.NewTimeoutError("the upstream API server did not answer in time"+x.outcome(), 0))
	case errors.Is(err, health.ErrSilent) && x.outcome() != "":
		return x.refused(reason.UpstreamSilent, apierrors.NewTimeoutError(health.ErrSilent.Error()+x.outcome(), 0))
	case errors.Is(err, health.ErrSilent):
		return x.refused(reason.UpstreamSilent, comeBack(health.ErrSilent.Error()))
	case errors.Is(err, health.ErrClosed):
		return x.refused(reason.ShuttingDown, api.NewServiceUnavailable("the gateway is shutting down"+x.outcome()))
	}
	x.c.logFailure(err, x.r)
	const broke = "the connection to the upstream API server broke before it answered"
	switch {
	case x.outcome() != "":
		return x.refused(reason.UpstreamBroke, api.NewServiceUnavailable(broke+x.outcome()))
	case x.sent.Load():
		return x.refused(reason.UpstreamBroke, comeBack(broke))
	}
	return x.refused(reason.UpstreamUnreachable, comeBack("the upstream API server cannot be reached: "+cause(err)))
}

// comeBack is the 503 for a request that may be sent again, with Retry-After.
func comeBack(message string) error {
	err := api.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// outcome says of a write that was sent what can be said.
func (x *forwarding) outcome() string {
	if pool.Safe(x.r.Method) || !x.sent.Load() {
		return ""
	}
	return "; it is not known whether the request was applied"
}

// refused counts and words a refusal.
func (x *forwarding) refused(why reason.Refusal, err error) *api.Response {
	x.c.metrics.refusals.Count(why)
	pretty := x.info.Pretty(x.r.Header.Get("User-Agent"))
	return api.StatusResponse(err, api.NegotiateStatus(x.r.Header.Get("Accept"), pretty))
}

func (c *Client) logFailure(err error, r *api.Request) {
	c.forwardErrors.warn(c.log, c.health.Now(), "forwarding failed", err, "method", r.Method, "path", r.Path)
}

// broken is the answer to a response that broke off before any of it was passed on.
func (x *forwarding) broken() *api.Response {
	if pool.Safe(x.r.Method) {
		return x.refused(reason.UpstreamBroke, comeBack("the response of the upstream API server broke off"))
	}
	err := api.NewServiceUnavailable("the response of the upstream API server broke off; the request was answered with " + x.resp.Status)
	err.ErrStatus.Details = &metav1.StatusDetails{Group: x.info.APIGroup, Kind: x.info.Resource, Name: x.info.Name}
	return x.refused(reason.UpstreamBroke, err)
}
