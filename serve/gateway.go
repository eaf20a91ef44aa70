package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
)

// NewGateway makes the parts of `kubeweir gateway`; nothing runs or listens yet.
// userAgent is what the cluster sees of the gateway's own requests.
func NewGateway(c *config.Gateway, userAgent string, log *slog.Logger) (_ *Server, err error) {
	s := newServer(log, c.AdminListen, c.Profiling, c.Shutdown, buildInfo("gateway", userAgent))
	form := &gateway{log: log}
	s.form = form
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.cluster.connect(upstreamOptions(c, userAgent, log, s.registry)); err != nil {
		return nil, err
	}
	s.cluster.decides = c.AsksAboutClients()
	cacheOptions := cacheOptions(&c.Limits, s.cluster.client.Source(), log, s.registry)
	cacheOptions.Limits.StaleAfter = c.Timeouts.FeedStale
	if err := s.cluster.addCache(cacheOptions, &c.Limits, proxy.ResourcesOptions{
		AggregatedGroups: c.CacheAggregatedGroups, DropManagedFields: c.DropManagedFields,
	}); err != nil {
		return nil, err
	}
	if err := s.addAudit(&c.Audit); err != nil {
		return nil, err
	}
	reviews, err := kubernetes.NewForConfigAndClient(s.cluster.client.ClientGo())
	if err != nil {
		return nil, fmt.Errorf("client of the upstream: %w", err)
	}
	if form.cert, err = newGatewayCert(c, log); err != nil {
		return nil, err
	}
	options := authenticatorOptions(c, reviews.AuthenticationV1().TokenReviews(), log, s.registry)
	if options.GatewayToken, err = fillServiceAccountDir(c, form.cert); err != nil {
		return nil, err
	}
	authenticator, err := identity.NewAuthenticator(options)
	if err != nil {
		return nil, err
	}
	s.cluster.authorizer = identity.NewAuthorizer(authorizerOptions(c, reviews.AuthorizationV1().SubjectAccessReviews(), log, s.registry))
	return s, s.addHandler(authenticator,
		identity.WatchesOptions{RecheckPeriod: c.Authorization.WatchRecheckPeriod, Grace: c.Authorization.WatchGrace},
		proxy.Options{CompressWatchLists: c.WatchListCompression, Consistency: consistency(c), Limits: proxyLimits(&c.Limits)},
		form.edgeOptions(c, s.registry),
	)
}

// gateway is the form that stands in front of a cluster elsewhere.
type gateway struct {
	log *slog.Logger
	// cert is what is served with where no certificate was given, nil elsewhere.
	cert *gatewayCert
}

func (g *gateway) edgeOptions(c *config.Gateway, registerer prometheus.Registerer) edge.Options {
	o := edgeOptions(&c.Limits, &c.Timeouts.ServingTimeouts, g.log, registerer)
	o.Listen, o.SidecarListen = c.Listen, c.InsecureListen
	o.CertFile, o.KeyFile = c.TLS.CertFile, c.TLS.PrivateKeyFile
	if g.cert != nil {
		o.GetCertificate = g.cert.material.ServingCertificate
	}
	return o
}

func (g *gateway) start(context.Context, context.Context) error { return nil }

func (g *gateway) listen(e *edge.Server) (edge.Addresses, error) {
	addresses, err := e.Start()
	if err != nil {
		return addresses, fmt.Errorf("--listen: %w", err)
	}
	return addresses, nil
}

func (g *gateway) announce(stderr io.Writer, served edge.Addresses) {
	if g.cert == nil || served.Secure == nil {
		return
	}
	list, err := g.cert.kubeconfig(served.Secure)
	if err != nil {
		g.log.Warn("no kubeconfig was written", "error", err)
		return
	}
	fmt.Fprintf(stderr, "kubeweir: export KUBECONFIG=%s\n", list)
}

func (g *gateway) checks() []proxy.Check { return nil }

func (g *gateway) close() {}
