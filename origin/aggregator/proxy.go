package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	library "k8s.io/kube-aggregator/pkg/apiserver"
	remotestatus "k8s.io/kube-aggregator/pkg/controllers/status/remote"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeweir/kubeweir/origin/internal/extension"
)

// proxyHandler serves one APIService. It forwards requests, as the requesting user, to the next
// server of the chain or to the API server behind the named service. Its error responses have the
// wording of kube-aggregator (pkg/apiserver/handler_proxy.go).
type proxyHandler struct {
	local    http.Handler
	resolver library.ServiceResolver
	logger   *slog.Logger
	target   atomic.Pointer[target]
}

// target is where an APIService is served. It is never changed.
type target struct {
	// remote is false when the next server of the chain serves it.
	remote          bool
	namespace, name string
	port            int32
	// available is whether the APIService is said to be.
	available bool
	transport http.RoundTripper
	// err is why there is no transport.
	err error
}

func (p *proxyHandler) update(service *apiregistration.APIService, dial *transport.DialHolder, cert, key []byte) {
	if service.Spec.Service == nil {
		p.target.Store(&target{})
		return
	}
	to := &target{
		remote:    true,
		namespace: service.Spec.Service.Namespace,
		name:      service.Spec.Service.Name,
		port:      *service.Spec.Service.Port,
		available: helper.IsAPIServiceConditionTrue(service, apiregistration.Available),
	}
	config := remotestatus.BuildTransportConfig(dial, cert, key, service)
	config.Wrap(extension.Statuses)
	to.transport, to.err = transport.New(config)
	if to.err != nil {
		p.logger.Warn("no transport for an APIService", "apiservice", service.Name, "error", to.err)
	}
	p.target.Store(to)
}

// available returns a handler for the same target that takes it to be available.
func (p *proxyHandler) available() http.Handler {
	to := *p.target.Load()
	to.available = true
	always := &proxyHandler{local: p.local, resolver: p.resolver, logger: p.logger}
	always.target.Store(&to)
	return always
}

// ServeHTTP implements http.Handler.
func (p *proxyHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	to := p.target.Load()
	switch {
	case !to.remote:
		p.local.ServeHTTP(w, req)
		return
	case !to.available:
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	case to.err != nil:
		http.Error(w, to.err.Error(), http.StatusInternalServerError)
		return
	}
	p.forward(to, w, req)
}

// forward serves a request by the API server behind to. It ends at the request's
// deadline by itself, as the transport does. It must not get a writer with a timeout of
// its own: httputil.ReverseProxy flushes from a timer, where the panic of a writer that
// cannot (that of http.TimeoutHandler, by which discovery and OpenAPI are downloaded, in
// one of genericfilters.WithTimeoutForNonLongRunningRequests) ends the process.
func (p *proxyHandler) forward(to *target, w http.ResponseWriter, req *http.Request) {
	user, ok := request.UserFrom(req.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	endpoint, err := p.resolver.ResolveEndpoint(to.namespace, to.name, to.port)
	if err != nil {
		p.logger.Error("an APIService's service has no endpoint", "namespace", to.namespace, "service", to.name, "error", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location := &url.URL{Scheme: "https", Host: endpoint.Host, Path: req.URL.Path, RawQuery: req.URL.Query().Encode()}
	forwarded, cancel := apiserverproxy.NewRequestForProxy(location, req)
	defer cancel()

	upgrade := httpstream.IsUpgradeRequest(req)
	if upgrade {
		// Upgrades are dialed past the transport, which would name the user otherwise.
		transport.SetAuthProxyHeaders(forwarded, user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra())
	}
	asUser := transport.NewAuthProxyRoundTripper(user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), to.transport)
	handler := proxy.NewUpgradeAwareHandler(location, asUser, true, upgrade, &responder{w: w})
	// A client that follows a redirect sends its credentials along (CVE-2022-3172).
	handler.RejectForwardingRedirects = true
	flowcontrol.RequestDelegated(req.Context())
	handler.ServeHTTP(w, forwarded)
}

// responder writes the errors of a proxied request.
type responder struct {
	w http.ResponseWriter
}

// Object implements rest.Responder.
func (r *responder) Object(status int, obj runtime.Object) {
	responsewriters.WriteRawJSON(status, obj, r.w)
}

// Error implements rest.Responder and proxy.ErrorResponder.
func (r *responder) Error(_ http.ResponseWriter, req *http.Request, err error) {
	if errors.Is(req.Context().Err(), context.DeadlineExceeded) {
		status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status()
		responsewriters.WriteRawJSON(http.StatusGatewayTimeout, &status, r.w)
		return
	}
	http.Error(r.w, err.Error(), http.StatusServiceUnavailable)
}
