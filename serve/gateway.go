package serve

import (
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// NewGateway makes the parts of `kubeweir gateway`; nothing runs or listens yet.
// userAgent is what the cluster sees of the gateway's own requests.
func NewGateway(c *config.Gateway, userAgent string, log *slog.Logger) (_ *Server, err error) {
	s := newServer(log, c.AdminListen, c.Profiling, c.Shutdown, buildInfo("gateway", userAgent))
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.client, err = upstream.New(upstreamOptions(c, userAgent, log, s.registry)); err != nil {
		return nil, err
	}
	s.decides = c.AsksAboutClients()
	s.discovery = s.client.Discovery(upstream.DiscoveryOptions{})
	cacheOptions := cacheOptions(&c.Limits, s.client.Source(), log, s.registry)
	cacheOptions.Limits.StaleAfter = c.Timeouts.FeedStale
	if err := s.addCache(cacheOptions, &c.Limits, c.CacheAggregatedGroups...); err != nil {
		return nil, err
	}
	if err := s.addAudit(&c.Audit); err != nil {
		return nil, err
	}
	reviews, err := kubernetes.NewForConfigAndClient(s.client.ClientGo())
	if err != nil {
		return nil, fmt.Errorf("client of the upstream: %w", err)
	}
	if s.cert, err = newGatewayCert(c, log); err != nil {
		return nil, err
	}
	options := authenticatorOptions(c, reviews.AuthenticationV1().TokenReviews(), log, s.registry)
	if options.GatewayToken, err = fillServiceAccountDir(c, s.cert); err != nil {
		return nil, err
	}
	authenticator, err := identity.NewAuthenticator(options)
	if err != nil {
		return nil, err
	}
	s.authorizer = identity.NewAuthorizer(authorizerOptions(c, reviews.AuthorizationV1().SubjectAccessReviews(), log, s.registry))
	return s, s.addHandler(authenticator,
		identity.WatchesOptions{RecheckPeriod: c.Authorization.WatchRecheckPeriod, Grace: c.Authorization.WatchGrace},
		proxy.Options{CompressWatchLists: c.WatchListCompression, Consistency: consistency(c), Limits: proxyLimits(&c.Limits)},
		gatewayEdgeOptions(c, log, s),
	)
}

func gatewayEdgeOptions(c *config.Gateway, log *slog.Logger, s *Server) edge.Options {
	o := edgeOptions(&c.Limits, &c.Timeouts.ServingTimeouts, log, s.registry)
	o.Listen, o.SidecarListen = c.Listen, c.InsecureListen
	o.CertFile, o.KeyFile = c.TLS.CertFile, c.TLS.PrivateKeyFile
	if s.cert != nil {
		o.GetCertificate = s.cert.material.ServingCertificate
	}
	return o
}
