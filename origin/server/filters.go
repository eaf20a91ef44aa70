package server

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/kubeweir/kubeweir/internal/api"
)

// longRunning adds the download of snapshots to the requests that next takes for long-running.
func longRunning(next apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *apirequest.RequestInfo) bool {
		return !info.IsResourceRequest && info.Path == api.SnapshotPath || next(req, info)
	}
}

// chain is genericapiserver.DefaultBuildHandlerChain, from the inside out, without the filters that
// this server does not need: auditing, tracing, CORS and HSTS. It also omits the recovery from
// panics, which after utilruntime.ReallyCrash = false would let an aborted response end as if it were
// complete. The caller of the handler (internal/inprocess, net/http) recovers and aborts the response.
// Until all paths are known, unknown paths get status 503.
func (s *Server) chain(handler http.Handler, c *genericapiserver.Config) http.Handler {
	handler = genericapifilters.WithAuthorization(handler, c.Authorization.Authorizer, c.Serializer)
	if s.fairness != nil {
		handler = s.fairness.Handler(handler)
	} else {
		handler = genericfilters.WithMaxInFlightLimit(handler, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	}
	handler = impersonation.WithConstrainedImpersonation(handler, c.Authorization.Authorizer, c.Serializer)
	handler = genericapifilters.WithAudit(handler, nil, nil, c.LongRunningFunc)
	handler = genericapifilters.WithAuthentication(handler, c.Authentication.Authenticator,
		genericapifilters.Unauthorized(c.Serializer), c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	// Within the timeout, which makes adding warnings safe.
	handler = genericapifilters.WithWarningRecorder(handler)
	handler = genericfilters.WithTimeoutForNonLongRunningRequests(handler, endsByItself(c.LongRunningFunc))
	handler = genericapifilters.WithRequestDeadline(handler, nil, nil, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	handler = genericfilters.WithWaitGroup(handler, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericapifilters.WithLatencyTrackers(handler)
	handler = genericapifilters.WithRequestInfo(handler, c.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithMuxAndDiscoveryComplete(handler, s.complete)
	return genericapifilters.WithAuditInit(handler)
}

// endsByItself adds to those that are longRunning the requests that change objects:
// their handlers end at the deadline without a goroutine of the timeout's own
// (finisher.FinishRequest).
func endsByItself(longRunning apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *apirequest.RequestInfo) bool {
		switch info.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			return info.IsResourceRequest || longRunning(req, info)
		}
		return longRunning(req, info)
	}
}

type userKey struct{}

// WithUser returns a context whose requests are made by u, unless they carry
// credentials of their own. Only code of this process can make one.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// Privileged is the user of Loopback: system:apiserver in system:masters.
func Privileged() user.Info {
	return &user.DefaultInfo{
		Name:   user.APIServerUser,
		Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup},
	}
}

// vouched authenticates requests without credentials as the user of their context
// (WithUser), all others by next.
func vouched(next authenticator.Request, audiences authenticator.Audiences) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		u, ok := req.Context().Value(userKey{}).(user.Info)
		if !ok || req.Header.Get("Authorization") != "" || req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
			return next.AuthenticateRequest(req)
		}
		return &authenticator.Response{User: u, Audiences: audiences}, true, nil
	})
}
