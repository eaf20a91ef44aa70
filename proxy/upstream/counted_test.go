package upstream

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/rejectiontest"
)

// rejectedBench is a Client before an upstream that can be frozen.
type rejectedBench struct {
	*server
	ice      freezer
	client   *Client
	registry *prometheus.Registry
	arrived  chan struct{} // a request that is no probe
}

// newRejectedBench answers by handle, if there is one, once it is not frozen.
func newRejectedBench(t *testing.T, handle http.HandlerFunc, limits Limits) *rejectedBench {
	t.Helper()
	b := &rejectedBench{registry: prometheus.NewRegistry(), arrived: make(chan struct{}, 10)}
	b.server = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		probe := r.URL.Path == "/version"
		if !probe {
			b.arrived <- struct{}{}
		}
		b.ice.wait(r.Context())
		if handle != nil && !probe {
			handle(w, r)
		}
	})
	t.Cleanup(b.ice.melt)
	b.client = b.server.client(t, func(o *Options) { o.Registerer, o.Limits = b.registry, limits })
	return b
}

// sendingBody is a request with a body that fails.
func sendingBody(err error) *api.Request {
	r := request("POST", "/api/v1/pods")
	r.Body, r.ContentLength = iotest.ErrReader(err), 5
	return r
}

// TestRejectionsAreCounted has a request for each reason for which this package refuses.
func TestRejectionsAreCounted(t *testing.T) {
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only this")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	unauthorized := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
	}
	malformed := request("GET", "/api/v1/pods")
	malformed.Method = "GET IT"
	get := request("GET", "/api/v1/pods")
	post := func() *api.Request { return withBody(request("POST", "/api/v1/pods"), "{}") }
	for _, c := range []struct {
		why     reason.Rejection
		name    string
		request *api.Request
		message string
		handle  http.HandlerFunc
		limits  Limits
		cred    Credentials
		before  func(*rejectedBench)
	}{
		{why: reason.RequestInvalid, name: "method", request: malformed, message: "malformed method"},
		{why: reason.RequestInvalid, name: "header", request: request("GET", "/api/v1/pods", "A B", "c"), message: "malformed header"},
		{why: reason.BodyTimeout, request: sendingBody(os.ErrDeadlineExceeded), message: "the request's body did not arrive in time"},
		{why: reason.BodyBroken, request: sendingBody(errors.New("gone")), message: "the request's body could not be read"},
		{why: reason.UpstreamUnreachable, request: get, message: "cannot be reached: connection refused", before: func(b *rejectedBench) { b.server.Close() }},
		{why: reason.UpstreamSilent, request: get, message: "has stopped responding", limits: Limits{SilenceTimeout: silence}, before: func(b *rejectedBench) { b.ice.freeze() }},
		{why: reason.UpstreamTimeout, name: "read", request: get, message: "did not respond in time", limits: Limits{RequestTimeout: silence}, before: func(b *rejectedBench) { b.ice.freeze() }},
		{why: reason.UpstreamTimeout, name: "write", request: post(), message: "did not respond in time; it is not known whether", limits: Limits{RequestTimeout: time.Second}, before: func(b *rejectedBench) { b.ice.freeze() }},
		{why: reason.UpstreamBroke, name: "read", request: get, message: "broke before it responded", handle: abort},
		{why: reason.UpstreamBroke, name: "write", request: post(), message: "broke before it responded; it is not known whether", handle: abort},
		{why: reason.UpstreamBroke, name: "half an answer", request: get, message: "broke off", handle: half},
		{why: reason.UpstreamBroke, name: "half an answer to a write", request: post(), message: "the status of the response was 200", handle: half},
		{why: reason.GatewayIdentityRejected, request: get, message: "cannot forward the request as its user", handle: unauthorized, cred: Credentials{As: AsGateway, KeepImpersonation: true}},
	} {
		t.Run(c.why.String()+" "+c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newRejectedBench(t, c.handle, c.limits)
				if c.before != nil {
					c.before(b)
				}
				b.check(t, c.why, c.message, b.client.Forward(testContext(t), c.request, c.cred))
			})
		})
	}
}

// TestRejectionsOfTheEndAreCounted: what is under way when the Client is closed.
func TestRejectionsOfTheEndAreCounted(t *testing.T) {
	const why, message = reason.ShuttingDown, "the gateway is shutting down"
	b := newRejectedBench(t, nil, Limits{})
	b.ice.freeze()
	responses := make(chan *api.Response, 1)
	go func() { responses <- b.client.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{}) }()
	within(t, b.arrived, "the request")
	b.client.Close()
	b.check(t, why, message, within(t, responses, "the answer"))
}

// check fails the test unless an answer is the one refusal that was counted.
func (b *rejectedBench) check(t *testing.T, why reason.Rejection, message string, resp *api.Response) {
	t.Helper()
	rejectiontest.Check(t, b.registry, why, message, rejectiontest.Response{
		Code: resp.Status, ContentType: resp.Header.Get("Content-Type"), RetryAfter: resp.Header.Get("Retry-After"), Body: finish(t, resp),
	})
}
