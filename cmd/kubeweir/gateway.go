package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/origin/builtin"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/admin"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// discoveryWait is how long the start waits for the upstream's discovery and
// definitions. After it the gateway serves all the same: what it does not know is
// forwarded.
const discoveryWait = 10 * time.Second

// runGateway is `kubeweir gateway`: it serves until ctx ends, then drains.
func runGateway(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.Parse(args)
	if errors.Is(err, config.ErrHelp) {
		_, err = fmt.Fprintf(stdout, "Usage: kubeweir gateway [flags]\n\n%s", config.Help())
		return err
	}
	if err != nil {
		return usageError{err}
	}
	log := newLogger(cfg.Log, stderr)
	g, err := newGateway(cfg, log)
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.start(ctx); err != nil {
		return err
	}
	g.announce(stderr)
	<-ctx.Done()
	log.Info("draining")
	g.drain()
	return nil
}

// gateway is the running program: the parts and who owns them.
type gateway struct {
	cfg      *config.Gateway
	log      *slog.Logger
	registry *prometheus.Registry

	client     *upstream.Client
	discovery  *upstream.Discovery
	manager    *cache.Manager
	reader     *cache.Reader
	watches    *cache.Watches
	resources  *proxy.Resources
	authorizer *identity.Authorizer
	revocation *identity.Watches
	audit      *audit.Log
	health     *proxy.Health
	edge       *edge.Server
	admin      *admin.Server
	addresses  edge.Addresses

	// background are the goroutines that run until stop.
	background sync.WaitGroup
	stop       context.CancelFunc
}

// newGateway makes the parts; nothing runs or listens yet.
func newGateway(cfg *config.Gateway, log *slog.Logger) (_ *gateway, err error) {
	g := &gateway{cfg: cfg, log: log, registry: prometheus.NewRegistry(), stop: func() {}}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	g.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if g.client, err = upstream.New(upstreamOptions(cfg, log, g.registry)); err != nil {
		return nil, err
	}
	g.discovery = g.client.Discovery(upstream.DiscoveryOptions{})
	if err := g.newCache(); err != nil {
		return nil, err
	}
	if cfg.Audit.Path != "" {
		if g.audit, err = audit.Open(auditOptions(cfg, log, g.registry)); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
	}
	return g, g.newServer()
}

func (g *gateway) newCache() (err error) {
	if g.manager, err = cache.NewManager(cacheOptions(g.cfg, g.client.Source(), g.log, g.registry)); err != nil {
		return err
	}
	if g.reader, err = cache.NewReader(cache.ReaderOptions{
		DerivedBytes: int64(g.cfg.Limits.DerivedCacheBytes), Registerer: g.registry,
	}); err != nil {
		return err
	}
	g.watches = cache.NewWatches(g.reader, g.registry)
	g.resources = proxy.NewResources(g.discovery, builtin.NewPrinters(), g.manager, g.log)
	return nil
}

func (g *gateway) newServer() error {
	reviews, err := kubernetes.NewForConfigAndClient(g.client.ClientGo())
	if err != nil {
		return fmt.Errorf("client of the upstream: %w", err)
	}
	authenticator, err := identity.NewAuthenticator(authenticatorOptions(g.cfg, reviews.AuthenticationV1().TokenReviews(), g.log, g.registry))
	if err != nil {
		return err
	}
	g.authorizer = identity.NewAuthorizer(authorizerOptions(g.cfg, reviews.AuthorizationV1().SubjectAccessReviews(), g.registry))
	g.revocation = identity.NewWatches(identity.WatchesOptions{
		Authorizer: g.authorizer, Authenticator: authenticator, Registerer: g.registry,
		RecheckPeriod: g.cfg.Authorization.WatchRecheckPeriod, Grace: g.cfg.Authorization.WatchGrace,
	})
	g.health = proxy.NewHealth(g.checks()...)
	handler := proxy.New(proxy.Options{
		Forwarder: g.client, Resources: g.resources, Manager: g.manager, Reader: g.reader, Watches: g.watches,
		Authenticator: authenticator, Authorizer: g.authorizer, Revocation: g.revocation,
		Consistency: consistency(g.cfg), Audit: g.audit, Health: g.health,
		Registerer: g.registry, Logger: g.log, Limits: proxyLimits(g.cfg),
	})
	options := edgeOptions(g.cfg, g.log, g.registry)
	options.Handler = handler
	options.OnDrain = func(ctx context.Context) { handler.Drain(ctx, g.cfg.Shutdown.Drain) }
	g.edge, err = edge.New(options)
	return err
}

// start runs everything and listens last.
func (g *gateway) start(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stop = stop
	first, cancel := context.WithTimeout(ctx, discoveryWait)
	defer cancel()
	if err := g.discovery.Refresh(first); err != nil {
		g.log.Warn("the upstream's discovery cannot be read yet, everything is forwarded until it can", "error", err)
	}
	g.background.Go(func() { g.discovery.Run(background) })
	g.background.Go(func() { g.resources.Run(background) })
	g.background.Go(func() { g.revocation.Run(background) })
	g.background.Go(func() {
		proxy.FollowRBAC(background, g.resources, g.manager, g.authorizer.Invalidate, g.log)
	})
	g.background.Go(func() { g.reopenOnHangup(background) })
	if !g.resources.WaitSynced(first) {
		g.log.Warn("custom resource definitions are not known yet, custom resources are forwarded until they are")
	}
	var err error
	if g.cfg.AdminListen != "" {
		if g.admin, err = admin.Start(g.cfg.AdminListen, g.registry, g.health, g.log); err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
	}
	if g.addresses, err = g.edge.Start(); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// reopenOnHangup opens the audit log anew at SIGHUP, for tools that rotate logs.
func (g *gateway) reopenOnHangup(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			g.audit.Reopen()
		case <-ctx.Done():
			return
		}
	}
}

// announce prints the line that says where the gateway serves.
func (g *gateway) announce(stderr io.Writer) {
	if pem := g.edge.CAPEM(); pem != nil && g.addresses.Secure != nil {
		fmt.Fprintf(stderr, "kubeweir: serving with a generated certificate, signed by\n%s", pem)
	}
	if g.addresses.Sidecar != nil {
		fmt.Fprintf(stderr, "kubeweir: sidecar on %s\n", g.addresses.Sidecar)
	}
	if g.addresses.Secure != nil {
		fmt.Fprintf(stderr, "kubeweir: ready on https://%s\n", g.addresses.Secure)
	} else {
		fmt.Fprintf(stderr, "kubeweir: ready on http://%s\n", g.addresses.Sidecar)
	}
}

// checks are the conditions of health.
func (g *gateway) checks() []proxy.Check {
	return []proxy.Check{
		{Name: "resources", Ready: true, Err: func() error {
			if !g.resources.Synced() {
				return errors.New("custom resource definitions are not known yet")
			}
			return nil
		}},
		{Name: "feeds", Ready: true, Err: func() error {
			for _, s := range g.manager.Status() {
				if s.State.Phase == cache.Stale {
					return fmt.Errorf("%s (%s) is stale since %s", s.Resource.GroupResource(), s.Encoding, s.State.Since.UTC().Format(time.RFC3339))
				}
			}
			return nil
		}},
	}
}

// cutAfter is how long after the drain what is left is cut: upgraded connections,
// clients that do not read.
const cutAfter = 3 * time.Second

// drain ends everything in an orderly way.
func (g *gateway) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Shutdown.Drain+cutAfter)
	defer cancel()
	if err := g.edge.Shutdown(ctx); err != nil {
		g.log.Warn("connections were cut", "error", err)
	}
}

// close releases what is left, in the reverse order of its making.
func (g *gateway) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if g.admin != nil {
		_ = g.admin.Close(ctx)
	}
	g.stop()
	if g.manager != nil {
		g.manager.Close()
	}
	g.background.Wait()
	if g.reader != nil {
		g.reader.Close()
	}
	if g.client != nil {
		g.client.Close()
	}
	if err := g.audit.Close(ctx); err != nil {
		g.log.Error("audit log is not complete", "error", err)
	}
}
