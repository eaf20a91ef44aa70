package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/builtin"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/admin"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// discoveryWait is how long the start waits for the upstream's discovery and
// definitions. After it requests are served all the same: what is not known is
// forwarded.
const discoveryWait = 10 * time.Second

// Server is kubeweir in either form: the parts and who owns them. Start is called
// once, then Drain or Cut, then Close; Close also without the others.
type Server struct {
	log      *slog.Logger
	registry *prometheus.Registry
	admin    string // address, "" for none
	profiles bool   // are served there
	drain    time.Duration

	client     *upstream.Client
	discovery  *upstream.Discovery
	manager    *cache.Manager
	reader     *cache.Reader
	watches    *cache.Watches
	resources  *proxy.Resources
	authorizer *identity.Authorizer
	revocation *identity.Watches
	// decides tells that there are clients with identities of their own.
	decides   bool
	audit     *audit.Log
	health    *proxy.Health
	edge      *edge.Server
	adminEdge *admin.Server
	addresses edge.Addresses

	// standalone is the origin and what belongs to it; nil in front of a cluster.
	standalone *standalone
	// cert is what a gateway serves with that was given no certificate, nil without.
	cert *gatewayCert

	// background are the goroutines that run until stop.
	background sync.WaitGroup
	stop       context.CancelFunc
}

func newServer(log *slog.Logger, adminListen string, profiling config.Profiling, shutdown config.Shutdown, build prometheus.Collector) *Server {
	s := &Server{log: log, registry: prometheus.NewRegistry(), admin: adminListen, drain: shutdown.Drain, stop: func() {}}
	s.profiles = profiling == "true" || profiling == config.ProfilingAuto && admin.Loopback(adminListen)
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return s
}

// buildInfo tells which program this is. userAgent is kubeweir/VERSION.
func buildInfo(mode, userAgent string) prometheus.Collector {
	_, version, _ := strings.Cut(userAgent, "/")
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubeweir_build_info", Help: "Always 1; the labels say what runs: the version, the Go that built it, and gateway or standalone.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version(), "mode": mode},
	}, func() float64 { return 1 })
}

// addCache makes what reads are answered from.
func (s *Server) addCache(options cache.Options, limits *config.Limits, aggregatedGroups ...string) (err error) {
	if s.manager, err = cache.NewManager(options); err != nil {
		return err
	}
	if s.reader, err = cache.NewReader(cache.ReaderOptions{
		DerivedBytes: int64(limits.DerivedCacheBytes), Registerer: s.registry,
	}); err != nil {
		return err
	}
	s.watches = cache.NewWatches(s.reader, s.registry)
	s.resources = proxy.NewResources(s.discovery, builtin.NewPrinters(), s.manager, s.log, aggregatedGroups...)
	return nil
}

// addAudit opens the audit log if there is to be one.
func (s *Server) addAudit(c *config.Audit) (err error) {
	if c.Path == "" {
		return nil
	}
	if s.audit, err = audit.Open(auditOptions(c, s.log, s.registry)); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// addHandler makes the handler and what serves it.
func (s *Server) addHandler(authenticator *identity.Authenticator, watches identity.WatchesOptions, options proxy.Options, edgeOptions edge.Options) (err error) {
	watches.Authorizer, watches.Authenticator, watches.Registerer = s.authorizer, authenticator, s.registry
	s.revocation = identity.NewWatches(watches)
	s.health = proxy.NewHealth(s.checks()...)

	options.Forwarder, options.Resources = s.client, s.resources
	options.Manager, options.Reader, options.Watches = s.manager, s.reader, s.watches
	options.Authenticator, options.Authorizer, options.Revocation = authenticator, s.authorizer, s.revocation
	options.Audit, options.Health = s.audit, s.health
	options.Registerer, options.Logger = s.registry, s.log
	handler := proxy.New(options)

	edgeOptions.Handler = handler
	edgeOptions.OnDrain = func(ctx context.Context) { handler.Drain(ctx, s.drain) }
	s.edge, err = edge.New(edgeOptions)
	return err
}

// Start runs everything and listens last. On an error Close must still be called.
func (s *Server) Start(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if s.standalone != nil {
		if err := s.standalone.start(ctx); err != nil {
			return err
		}
		if s.standalone.accounts != nil {
			s.background.Go(func() { s.standalone.accounts.Run(background) })
		}
	}
	s.startProxy(ctx, background)
	var err error
	if s.admin != "" {
		if s.adminEdge, err = admin.Start(admin.Options{Addr: s.admin, Gatherer: s.registry, Health: s.health, Profiling: s.profiles, Log: s.log}); err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
	}
	s.background.Go(func() { releaseMemory(background) })
	if s.standalone != nil {
		s.addresses = edge.Addresses{Secure: s.standalone.listener.Addr()}
		return s.edge.Serve(s.standalone.listener, api.ListenerSecure)
	}
	if s.addresses, err = s.edge.Start(); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// startProxy runs what feeds and guards the cache.
func (s *Server) startProxy(ctx, background context.Context) {
	first, cancel := context.WithTimeout(ctx, discoveryWait)
	defer cancel()
	if err := s.discovery.Refresh(first); err != nil {
		s.log.Warn("the upstream's discovery cannot be read yet, everything is forwarded until it can", "error", err)
	}
	s.background.Go(func() { s.discovery.Run(background) })
	s.background.Go(func() { s.resources.Run(background) })
	s.background.Go(func() { s.revocation.Run(background) })
	if s.decides {
		s.background.Go(func() {
			proxy.FollowRBAC(background, s.resources, s.manager, s.authorizer.Invalidate, s.log)
		})
	}
	s.background.Go(func() { s.reopenOnHangup(background) })
	if !s.resources.WaitSynced(first) {
		s.log.Warn("custom resource definitions are not known yet, custom resources are forwarded until they are")
	}
}

// reopenOnHangup opens the audit log anew at SIGHUP, for tools that rotate logs.
func (s *Server) reopenOnHangup(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			s.audit.Reopen()
		case <-ctx.Done():
			return
		}
	}
}

// Addr is where the API is served with TLS; nil without that, and before Start.
func (s *Server) Addr() net.Addr { return s.addresses.Secure }

// AdminAddr is where metrics and health are served; nil without that, and before Start.
func (s *Server) AdminAddr() net.Addr {
	if s.adminEdge == nil {
		return nil
	}
	return s.adminEdge.Addr()
}

// Announce prints the lines that say where requests are served.
func (s *Server) Announce(stderr io.Writer) {
	if pem := s.edge.CAPEM(); pem != nil && s.addresses.Secure != nil {
		fmt.Fprintf(stderr, "kubeweir: serving with a generated certificate, signed by\n%s", pem)
	}
	if s.cert != nil && s.addresses.Secure != nil {
		if list, err := s.cert.kubeconfig(s.addresses.Secure); err != nil {
			s.log.Warn("no kubeconfig was written", "error", err)
		} else {
			fmt.Fprintf(stderr, "kubeweir: export KUBECONFIG=%s\n", list)
		}
	}
	if s.standalone != nil && s.standalone.kubeconfig != "" {
		fmt.Fprintf(stderr, "kubeweir: export KUBECONFIG=%s\n", s.standalone.kubeconfig)
	}
	if s.addresses.Sidecar != nil {
		fmt.Fprintf(stderr, "kubeweir: sidecar on %s\n", s.addresses.Sidecar)
	}
	if s.addresses.Secure != nil {
		fmt.Fprintf(stderr, "kubeweir: ready on https://%s\n", s.addresses.Secure)
	} else {
		fmt.Fprintf(stderr, "kubeweir: ready on http://%s\n", s.addresses.Sidecar)
	}
}

// checks are the conditions of health.
func (s *Server) checks() []proxy.Check {
	checks := []proxy.Check{
		{Name: "resources", Ready: true, Err: func() error {
			if !s.resources.Settled() {
				return errors.New("custom resource definitions are not known yet")
			}
			return nil
		}},
		{Name: "feeds", Ready: true, Err: func() error {
			for _, c := range s.manager.Status() {
				if c.State.Phase == cache.Stale {
					return fmt.Errorf("%s (%s) is stale since %s", c.Resource.GroupResource(), c.Encoding, c.State.Since.UTC().Format(time.RFC3339))
				}
			}
			return nil
		}},
	}
	if s.standalone != nil {
		checks = append(checks, proxy.Check{Name: "store", Err: s.standalone.storeError})
	}
	return checks
}

// cutAfter is how long after the drain what is left is cut: upgraded connections,
// clients that do not read.
const cutAfter = 3 * time.Second

// Drain ends everything in an orderly way.
func (s *Server) Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), s.drain+cutAfter)
	defer cancel()
	if err := s.edge.Shutdown(ctx); err != nil {
		s.log.Warn("connections were cut", "error", err)
	}
}

// Cut ends everything at once, without a word to clients: for tests.
func (s *Server) Cut() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.edge.Shutdown(ctx)
}

// closeTime is how long Close waits for the audit log and the admin listener.
const closeTime = 5 * time.Second

// Close releases what is left, in the reverse order of its making.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.adminEdge != nil {
		_ = s.adminEdge.Close(ctx)
	}
	s.stop()
	if s.manager != nil {
		s.manager.Close()
	}
	s.background.Wait()
	if s.reader != nil {
		s.reader.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
	if err := s.audit.Close(ctx); err != nil {
		s.log.Error("audit log is not complete", "error", err)
	}
	if s.standalone != nil {
		s.standalone.close()
	}
}
