package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/origin/aggregator"
	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
	"github.com/kubeweir/kubeweir/origin/crd"
	"github.com/kubeweir/kubeweir/origin/fairness"
	"github.com/kubeweir/kubeweir/origin/registry"
)

// Server is the API server. Its methods are safe for concurrent use.
type Server struct {
	opts      Options
	loopback  *loopback
	client    *kubernetes.Clientset
	informers informers.SharedInformerFactory
	progress  *registry.Progress
	access    *access.Access
	fairness  *fairness.Controller // nil without priority and fairness
	// crds and aggregator are nil until they are built.
	crds       *crd.Server
	aggregator *aggregator.Server
	requests   requests
	// snapshots has a slot for each snapshot that is sent.
	snapshots chan struct{}

	startSeconds prometheus.Gauge
	// starting is held while Start runs.
	starting sync.Mutex
	// bootstrapped is closed when the objects that clients rely on exist, complete when every path is
	// served.
	bootstrapped, complete chan struct{}
	// keeping ends what keeps objects in place, and a Start that is under way; stopped ends all that
	// Start begins.
	keeping, stopped context.Context
	withdraw, stop   context.CancelFunc
	close            func() error
	// running waits for the goroutines that bootstrap started.
	running func()
}

// resync is how often informers tell their handlers about everything again, which
// is kube-apiserver's interval.
const resync = 10 * time.Minute

// New builds a server; nothing of it runs, and nothing is written, before Start.
func New(opts Options) (*Server, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	s := &Server{
		opts:     opts,
		loopback: newLoopback(opts),
		progress: &registry.Progress{},

		bootstrapped: make(chan struct{}), complete: make(chan struct{}),
		snapshots: make(chan struct{}, maxSnapshots),
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.keeping, s.withdraw = context.WithCancel(s.stopped)
	s.requests.stopped = s.stopped
	s.close = sync.OnceValue(s.shutdown)
	if err := s.register(opts.Registerer); err != nil {
		return nil, err
	}
	if err := s.build(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	handler := s.Handler()
	s.loopback.handler.Store(&handler)
	return s, nil
}

func (opts *Options) complete() error {
	switch {
	case opts.Engine == nil:
		return errors.New("origin/server: Options.Engine is missing")
	case opts.Identity.ServiceAccountKey == nil:
		return errors.New("origin/server: Options.Identity.ServiceAccountKey is missing")
	}
	if !opts.AdvertiseAddress.IsValid() {
		opts.AdvertiseAddress = netip.MustParseAddrPort("127.0.0.1:6443")
	}
	if len(opts.ServiceCIDRs) == 0 {
		opts.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	}
	if opts.Resources == nil {
		opts.Resources = groups.DefaultResources()
	}
	if opts.NodePorts.Size == 0 {
		opts.NodePorts = PortRange(groups.DefaultNodePorts())
	}
	if opts.StoragePrefix == "" {
		opts.StoragePrefix = registry.DefaultPrefix
	}
	if opts.Requests == nil {
		opts.Requests = &RequestLimits{Enabled: true, MaxRequestsInFlight: 400, MaxMutatingRequestsInFlight: 200}
	}
	if opts.EventTTL == 0 {
		opts.EventTTL = time.Hour
	}
	if opts.Identity.Issuer == "" {
		opts.Identity.Issuer = "https://kubernetes.default.svc.cluster.local"
	}
	if len(opts.Identity.Audiences) == 0 {
		opts.Identity.Audiences = append([]string{opts.Identity.Issuer}, opts.Identity.AcceptedIssuers...)
	}
	if opts.StoreHealth == nil {
		opts.StoreHealth = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
			defer cancel()
			_, err := opts.Engine.CurrentRevision(ctx)
			return err
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return nil
}

// library returns r in the type of the library.
func (r PortRange) library() utilnet.PortRange { return utilnet.PortRange(r) }

// Handler is the complete API: authentication, impersonation, authorization,
// deadlines, warnings and all groups. It may be served before Start has returned
// and then answers as kube-apiserver does before it is ready.
//
// It authenticates by, in this order: the Authorization header or the client
// certificate in req.TLS, then the user that the request's context holds (WithUser),
// and else takes the request for an anonymous one. A context's user is thus what
// an in-process connection vouches for, and a client's own credentials win over it.
//
// Watches need a ResponseWriter that flushes; exec, attach, port-forward and proxied
// upgrades one that hijacks.
func (s *Server) Handler() http.Handler { return s.requests.handler(s.aggregator.Generic.Handler) }

// Loopback is a configuration for clients in this process: they call the Handler
// without a socket, as system:apiserver in system:masters.
func (s *Server) Loopback() *rest.Config { return rest.CopyConfig(s.loopback.config(s.opts)) }

// Fairness limits requests that reach the Handler. Callers use it for requests that they serve
// without the Handler. It is nil without priority and fairness.
func (s *Server) Fairness() *fairness.Controller { return s.fairness }

// Progress requests progress of the open watches of a resource.
func (s *Server) Progress() *registry.Progress { return s.progress }

// register registers the metrics with r, which may be nil.
func (s *Server) register(r prometheus.Registerer) error {
	s.startSeconds = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubeweir_origin_start_seconds", Help: "Time from the start of the origin until it was ready.",
	})
	if r == nil {
		return nil
	}
	open := gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_origin_requests_in_flight", Help: "Requests that the origin is serving, including watches and its own requests.",
	}, func() float64 { return float64(s.requests.open.Load()) })
	for _, c := range []prometheus.Collector{s.startSeconds, open} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("origin/server: metrics: %w", err)
		}
	}
	return nil
}

// Withdraw removes the server from the endpoints of the service default/kubernetes, and ends what
// keeps objects in place and a Start that is under way. Requests are still served.
func (s *Server) Withdraw() {
	s.withdraw()
	s.starting.Lock() // until Start has given up
	defer s.starting.Unlock()
	if s.running == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running()
	}()
	select {
	case <-ended:
	case <-time.After(withdrawTimeout): // Close ends the requests that it waits for
	}
}

// withdrawTimeout bounds Withdraw if the store does not respond.
const withdrawTimeout = 3 * time.Second

// Close withdraws the server, ends watches and all other requests and waits for them, for informers and
// for what keeps things in place (bootstrap). The controllers of the libraries end by
// themselves soon afterwards; they reach the engine only by requests, of which none is
// served any more. The engine stays open. A Start that is under way fails.
func (s *Server) Close() error { return s.close() }
