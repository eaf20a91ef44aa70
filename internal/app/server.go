package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/app/certs"
	"github.com/kubeweir/kubeweir/internal/app/recording"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/origin/testapi"
	"github.com/kubeweir/kubeweir/proxy/admin"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/console"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/edge/h1"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/tracing"
)

// Server is kubeweir in either form: a process, which listens, records and tells how it
// is, and the cluster that it serves. Start is called once, then Drain or Cut, then
// Close; Close also without the others.
type Server struct {
	log      *slog.Logger
	registry *prometheus.Registry
	blocked  *policy.Blocked
	admin    adminOptions
	drain    time.Duration

	served    served // nil until it is made
	health    *healthz.Health
	gatherer  prometheus.Gatherer
	form      form
	audit     *audit.Log
	tracer    *tracing.Tracer // nil without tracing
	edge      *edge.Server
	adminEdge *admin.Server
	console   *console.Console // nil without one
	addresses edge.Addresses

	// background are the goroutines that run until stop.
	panics     *contain.Panics
	background sync.WaitGroup
	stop       context.CancelFunc

	// several is what is served if it is several clusters, nil else; source is where the
	// configuration of a gateway comes from.
	several *clusterSet
	source  configSource
}

// served is what a process serves: one cluster or several. Its methods are called in this order,
// close also without the others.
type served interface {
	start(ctx context.Context)
	clusters() []*cluster // at present
	close()
}

// form is what differs between the two forms.
type form interface {
	// start makes the upstream ready to be asked; what runs on ends with background.
	start(ctx, background context.Context) error
	// listen begins to serve requests.
	listen(e *edge.Server) (edge.Addresses, error)
	// announce prints what a user of served has to know to reach it.
	announce(stderr io.Writer, served edge.Addresses)
	// withdraw tells others that the server is about to end, while it serves requests.
	withdraw()
	// close releases what it holds, after everything else.
	close()
}

// adminOptions configure the admin listener and describe the program on it.
type adminOptions struct {
	listen        string // address, "" for none
	profiling     config.Profiling
	console       config.Console
	settings      func() []config.SettingInForce // in force; nil for those of a gateway, which change
	mode, version string
	testAPI       *testapi.API // nil without one
}

// newServer makes what both forms have. userAgent is kubeweir/VERSION.
func newServer(log *slog.Logger, o adminOptions, userAgent string, shutdown config.Shutdown) *Server {
	_, o.version, _ = strings.Cut(userAgent, "/")
	s := &Server{log: log, registry: prometheus.NewRegistry(), admin: o, drain: shutdown.Drain, stop: func() {}}
	s.gatherer, s.panics = s.registry, contain.New(s.registry, log)
	s.blocked = policy.NewBlocked(s.registry)
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(o.mode, o.version))
	return s
}

// profiles reports whether the admin listener serves them.
func (o *adminOptions) profiles() bool {
	return o.profiling == "true" || o.profiling == config.ProfilingAuto && admin.Loopback(o.listen)
}

// buildInfo returns the metric that identifies the program.
func buildInfo(mode, version string) prometheus.Collector {
	return gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_build_info", Help: "Always 1; the labels are the version, the Go version of the build, and the mode (gateway or standalone).",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version(), "mode": mode},
	}, func() float64 { return 1 })
}

// addAudit opens the audit log, which may be switched off.
func (s *Server) addAudit(c *config.Audit) (err error) {
	s.audit, err = recording.Open(c, s.log, s.registry)
	return err
}

// recorders record requests; each may be nil.
type recorders struct {
	audit  *audit.Log
	tracer *tracing.Tracer
}

func (s *Server) recorders() recorders { return recorders{s.audit, s.tracer} }

// addTracer opens the tracer, which may be switched off. service names the program in its spans.
func (s *Server) addTracer(c *config.Tracing, service string) error {
	read, err := c.Read()
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	instance, err := os.Hostname()
	if err != nil {
		instance = service
	}
	s.tracer, err = tracing.Open(tracing.Options{Config: read, Service: service, Instance: instance, Registerer: s.registry, Logger: s.log})
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	return nil
}

// addEdge creates the edge server, which serves handler. Its certificate is that of t, if t names
// files.
func (s *Server) addEdge(handler api.Handler, health *healthz.Health, options edge.Options, t *config.TLS) error {
	get, err := certs.Files(t, time.Now, s.log, s.registry)
	if err != nil {
		return err
	}
	if get != nil {
		options.GetCertificate = get
	}
	s.health = health
	options.Handler = handler
	options.OnDrain = s.drainWatches
	s.edge, err = edge.New(options, edge.Protocols{HTTP1: h1.Serve, HTTP2: h2.Serve})
	return err
}

// Start runs everything and listens last. On an error Close must still be called.
func (s *Server) Start(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := s.form.start(ctx, background); err != nil {
		return err
	}
	s.panics.Keep(&s.background, "background", func() { s.followSignals(background) })
	s.served.start(ctx)
	if s.several != nil && s.several.profiles != nil {
		if err := s.followProfiles(ctx, background); err != nil {
			return err
		}
	}
	if s.admin.listen != "" {
		if err := s.startAdmin(); err != nil {
			return err
		}
	}
	var err error
	s.addresses, err = s.form.listen(s.edge)
	return err
}

// startAdmin begins to serve what operators look at.
func (s *Server) startAdmin() (err error) {
	o := admin.Options{
		Addr: s.admin.listen, Gatherer: s.gatherer, Health: s.health, Profiling: s.admin.profiles(),
		Verify: s.verify, Log: s.log,
	}
	if s.admin.testAPI != nil {
		o.TestAPI = s.admin.testAPI.Handler()
	}
	if s.admin.console.Enabled {
		if err := s.openConsole(); err != nil {
			return err
		}
		o.Console = s.console
	}
	if s.adminEdge, err = admin.Start(o); err != nil {
		return fmt.Errorf("--admin-listen: %w", err)
	}
	return nil
}

// verify compares the caches of all clusters with their upstreams, one after another.
func (s *Server) verify(ctx context.Context, which func(schema.GroupVersionResource) bool) (all []admin.VerifiedCollection) {
	for _, c := range s.served.clusters() {
		for _, checked := range c.manager.Check(ctx, which) {
			found := admin.Found(checked)
			found.Cluster = c.name
			all = append(all, found)
		}
	}
	return all
}

// drainWatches ends the watches of all clusters, spread over the drain time.
func (s *Server) drainWatches(ctx context.Context) {
	var all sync.WaitGroup
	for _, c := range s.served.clusters() {
		s.panics.Go(&all, "background", func() { c.handler.Drain(ctx, s.drain) })
	}
	all.Wait()
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
	s.form.announce(stderr, s.addresses)
	if s.admin.testAPI != nil {
		fmt.Fprintf(stderr, "kubeweir: test API on http://%s%s\n", s.AdminAddr(), api.TestAPIPath)
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

// cutAfter is how long after the drain what is left is cut: upgraded connections,
// clients that do not read.
const cutAfter = 3 * time.Second

// Drain ends everything in an orderly way.
func (s *Server) Drain() {
	s.form.withdraw()
	ctx, cancel := context.WithTimeout(context.Background(), s.drain+cutAfter)
	defer cancel()
	if err := s.edge.Shutdown(ctx); err != nil {
		s.log.Warn("connections reset", "error", err)
	}
}

// Cut ends everything at once, without a word to clients: for tests.
func (s *Server) Cut() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.edge.Shutdown(ctx)
}

const (
	// closeTime is how long Close waits for the audit log and the admin listener.
	closeTime = 5 * time.Second
	// flushTime is how long Close waits for the collector of spans.
	flushTime = 2 * time.Second
	// closeTimeout bounds Close: a disk may not respond.
	closeTimeout = 20 * time.Second
)

// Close releases everything, in the reverse order of its creation.
func (s *Server) Close() {
	done := make(chan struct{})
	s.panics.Go(nil, "background", func() {
		defer close(done)
		s.close()
	})
	select {
	case <-done:
	case <-time.After(closeTimeout):
		s.log.Warn("shutdown is incomplete: a disk or a connection does not respond")
	}
}

func (s *Server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.console != nil {
		s.console.Close() // its streams, which the listener would wait for
	}
	if s.adminEdge != nil {
		_ = s.adminEdge.Close(ctx)
	}
	s.stop()
	if s.served != nil {
		s.served.close()
	}
	s.background.Wait()
	if err := s.audit.Close(ctx); err != nil {
		s.log.Error("audit log incomplete", "error", err)
	}
	s.form.close()
	flush, cancelFlush := context.WithTimeout(context.Background(), flushTime)
	defer cancelFlush()
	if err := s.tracer.Close(flush); err != nil {
		s.log.Warn("spans lost, the collector of --tracing-config-file did not accept them in time", "error", err)
	}
}
