package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app/certs"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/console"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// NewGateway creates the parts of `kubeweir gateway`; nothing runs or listens yet. userAgent is the
// user agent of the gateway's own requests to the cluster.
func NewGateway(c *config.Gateway, userAgent string, log *slog.Logger) (_ *Server, err error) {
	s := newServer(log, adminOptions{listen: c.AdminListen, profiling: c.Profiling, console: c.Console, mode: console.Gateway}, userAgent, c.Shutdown)
	form := &gateway{log: log}
	s.form = form
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.source.current, s.source.read, s.source.metrics = c, c, newReloadMetrics(s.registry)
	// This comes before anything is written, so that an invalid kubeconfig leaves nothing behind.
	var members []*member
	one := newCluster(log, s.registry, s.registry, s.blocked)
	if !c.Several() {
		s.served = one
		err = one.connectTo(c, nil, userAgent)
	} else if s.several, err = newClusters(c, userAgent, log, s.registry, s.blocked); err == nil {
		s.served, form.clusters = s.several, s.several.clusters
		s.source.cover, s.source.providers = form.cover, c.ClusterProfiles.ProviderFile
		members, err = s.several.connectAll(configured(c))
	}
	if err != nil {
		return nil, err
	}
	if err := s.addAudit(&c.Audit); err != nil {
		return nil, err
	}
	if err := s.addTracer(&c.Tracing, "kubeweir-gateway"); err != nil {
		return nil, err
	}
	if form.cert, err = certs.NewGenerated(c, log); err != nil {
		return nil, err
	}
	token, err := certs.FillServiceAccountDir(c, form.cert)
	if err != nil {
		return nil, err
	}
	edgeOptions := form.edgeOptions(c, s.registry)
	if s.several == nil {
		if err := one.build(c, token, s.recorders()); err != nil {
			return nil, err
		}
		return s, s.addEdge(one.handler, one.health, edgeOptions, &c.TLS)
	}
	if err := s.several.completeAll(members, s.recorders()); err != nil {
		return nil, err
	}
	s.several.clearState(c, configured(c))
	s.gatherer = s.several
	return s, s.addEdge(s.several.router, s.several.health, edgeOptions, &c.TLS)
}

// connectTo creates the client of a remote cluster. access is how to reach it if there is no
// kubeconfig, otherwise nil.
func (c *cluster) connectTo(g *config.Gateway, access *rest.Config, userAgent string) error {
	o := upstreamOptions(g, userAgent)
	o.Config, o.Name = access, c.name
	return c.connect(o)
}

// build creates the parts in front of a remote cluster's client. token is the bearer token that
// stands for the gateway's own identity, "" for none.
func (c *cluster) build(g *config.Gateway, token authn.Token, to recorders) error {
	c.decides = g.ReviewsClients()
	c.offlineFor.Store(int64(offlineTTL(g)))
	reviews, err := kubernetes.NewForConfigAndClient(c.client.ClientGo())
	if err != nil {
		return fmt.Errorf("client of the upstream: %w", err)
	}
	cached := cacheOptions(&g.Limits, c.client.Source())
	cached.Limits.StaleAfter = g.Timeouts.FeedStale
	if cached.Checkpoints, err = c.checkpointOptions(&g.State, reviews); err != nil {
		return err
	}
	upstream, _ := c.client.ClientGo()
	cached.Checkpoints.ServeUnconfirmed = c.openDecisions(g, cached.Checkpoints.Cluster, upstream.Host)
	if err := c.addCache(cached, &g.Limits, discovery.Options{
		AggregatedGroups: g.CacheAggregatedGroups, DropManagedFields: g.DropManagedFields,
	}); err != nil {
		return err
	}
	authenticator := authenticatorOptions(g, reviews.AuthenticationV1().TokenReviews())
	authenticator.GatewayToken, authenticator.Reachable = token, c.reachable
	authorizer := authorizerOptions(g, &syncedReviewer{
		AccessReviewer: reviews.AuthorizationV1().SubjectAccessReviews(),
		synced:         hasRBAC(reviews.Discovery().RESTClient()), now: time.Now,
	})
	authorizer.Reachable = c.reachable
	authorizer.Rules = rbac.NewOffline(c.resources, c.manager, c.reachable, c.offlineTTL, c.log)
	if c.decisions != nil {
		authenticator.OnChange, authorizer.OnChange = c.decisions.Changed, c.decisions.Changed
	}
	if err := c.addIdentity(authenticator, authorizer); err != nil {
		return err
	}
	if c.decisions != nil {
		c.decisions.Restore(c.authenticator, c.authorizer)
	}
	c.addHandler(
		revocation.Options{RecheckPeriod: g.Authorization.WatchRecheckPeriod, Grace: g.Authorization.WatchGrace},
		proxy.Options{CompressWatchLists: g.WatchListCompression, Policy: policyOf(g), Reachable: c.reachable,
			Discovered: c.discovery.Documents, VisibleNamespaces: g.Authorization.VisibleNamespaces,
			Cluster: c.name, Audit: to.audit, Tracer: to.tracer},
	)
	return nil
}

// gateway is the kind of server that serves remote clusters.
type gateway struct {
	log *slog.Logger
	// clusters returns the present clusters; it is nil if there is a single one.
	clusters func() []*cluster
	cert     *certs.Generated // nil with --tls-cert-file, or without --listen
}

func (g *gateway) edgeOptions(c *config.Gateway, registerer prometheus.Registerer) edge.Options {
	o := edgeOptions(&c.Limits, &c.Timeouts.ServingTimeouts, g.log, registerer)
	o.Listen, o.SidecarListen = c.Listen, c.InsecureListen
	o.MinTLSVersion, o.CipherSuites = c.TLS.MinVersion.ID(), c.TLS.CipherSuiteIDs()
	if g.cert != nil {
		o.GetCertificate = g.cert.Certificate
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

// cover adds the hosts of the clusters of c to the generated certificate.
func (g *gateway) cover(c *config.Gateway) error {
	if g.cert == nil {
		return nil
	}
	return g.cert.Cover(c)
}

// withdraw has nothing to do: nobody is told of a gateway.
func (g *gateway) withdraw() {}

func (g *gateway) announce(stderr io.Writer, served edge.Addresses) {
	persistent := g.cert != nil && g.cert.IsPersistent()
	if g.cert != nil && !persistent && served.Secure != nil {
		fmt.Fprintf(stderr, "kubeweir: serving with a generated certificate, signed by\n%s", g.cert.CACertPEM())
	}
	if g.clusters != nil {
		var names []string
		for _, c := range g.clusters() {
			names = append(names, c.name)
		}
		fmt.Fprintf(stderr, "kubeweir: clusters %s; kubeweir kubeconfig writes a kubeconfig of them\n", cmp.Or(strings.Join(names, ", "), "none yet"))
		return
	}
	if !persistent || served.Secure == nil {
		return
	}
	list, err := g.cert.WriteKubeconfig(served.Secure)
	if err != nil {
		g.log.Warn("kubeconfig not written", "error", err)
		return
	}
	fmt.Fprintf(stderr, "kubeweir: export KUBECONFIG=%s\n", list)
}

func (g *gateway) close() {}
