package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/app/reviews"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/origin/builtin/accounts"
	"github.com/kubeweir/kubeweir/origin/builtin/encryption"
	"github.com/kubeweir/kubeweir/origin/builtin/fakenodes"
	"github.com/kubeweir/kubeweir/origin/pki"
	"github.com/kubeweir/kubeweir/origin/registry"
	"github.com/kubeweir/kubeweir/origin/server"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/testapi"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/admin"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/console"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// StandaloneOptions are settings that only a command line or a test has.
type StandaloneOptions struct {
	// NoDataDir keeps nothing on disk: objects, keys and certificates end with the process. For tests.
	NoDataDir bool
	// ObjectsInMemory keeps only the objects in memory. Keys, certificates and the kubeconfig are in the
	// data folder.
	ObjectsInMemory bool
	// TestAPI serves package testapi on the admin listener, which must be on a loopback address.
	TestAPI bool
	// KubeAPIServer has settings that Standalone of package config does not have.
	KubeAPIServer config.KubeAPIServer
	// UserAgent is the user agent of the gateway's own requests to the origin.
	UserAgent string
	// Logger is required.
	Logger *slog.Logger
}

// standalone is the origin with its store, keys, listener and controllers.
type standalone struct {
	material    *pki.Material
	engine      storage.Engine
	encryption  *encryption.Encryption // nil without a file of providers
	server      *server.Server
	accounts    *accounts.Controller                   // nil if Pods need no service account, or it is excluded
	controllers map[string]func(context.Context) error // and nodes that run in this process, by name
	testAPI     *testapi.API                           // nil without one
	manager     *cache.Manager                         // of the cluster that the server is; nil until it is made
	clock       *testapi.Clock                         // of the store, for testAPI; nil with etcd
	fake        *fakenodes.Nodes                       // nil if there are none
	listener    net.Listener
	cache       *healthz.Health // of the cluster that the server is
	kubeconfig  string          // absolute path, "" in memory
	url         string          // for clients on this machine
	prefix      string          // of the store's keys
	failed      chan error

	log        *slog.Logger
	panics     *contain.Panics
	background sync.WaitGroup // until the context of start ends
}

// Standalone is a Server with an upstream of its own.
type Standalone struct {
	*Server
	origin *standalone
}

// Names in the data folder.
const (
	pkiFolder   = "pki"
	storeFolder = "store"
	kubeconfig  = "kubeconfig"
)

// NewStandalone makes the parts of `kubeweir standalone`. It opens the store and
// listens, so that what is taken already is known at once, but serves nothing before
// Start. ctx bounds the making only.
func NewStandalone(ctx context.Context, c *config.Standalone, o StandaloneOptions) (_ *Standalone, err error) {
	s := newServer(o.Logger, adminOptions{listen: c.AdminListen, profiling: c.Profiling, console: c.Console, settings: c.SettingsInForce, mode: console.Standalone}, o.UserAgent, c.Shutdown)
	origin := &standalone{log: o.Logger, panics: s.panics, prefix: c.Etcd.Prefix, failed: make(chan error, 1)}
	s.form = origin
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := origin.open(ctx, c, o, s.registry); err != nil {
		return nil, err
	}
	if o.TestAPI {
		if err := origin.addTestAPI(c); err != nil {
			return nil, err
		}
		s.admin.testAPI = origin.testAPI
	}
	if err := s.addAudit(&c.Audit); err != nil {
		return nil, err
	}
	if err := s.addTracer(&c.Tracing, "apiserver"); err != nil {
		return nil, err
	}
	cluster := newCluster(o.Logger, s.registry, s.registry, s.blocked)
	s.served = cluster
	if err := cluster.buildStandalone(c, &o, origin, s.recorders()); err != nil {
		return nil, err
	}
	if o.TestAPI {
		origin.testAPI.Rewind = cluster.manager.Rewind
	}
	if err := s.addEdge(origin.withFaults(cluster.handler), cluster.health, origin.edgeOptions(c, &o, s.registry), &c.TLS); err != nil {
		return nil, err
	}
	return &Standalone{Server: s, origin: origin}, nil
}

// buildStandalone makes the parts of the cluster that the origin is.
func (c *cluster) buildStandalone(s *config.Standalone, so *StandaloneOptions, origin *standalone, to recorders) error {
	if err := c.connect(upstream.Options{
		InProcess: origin.upstream(), UserAgent: so.UserAgent,
		Limits: upstream.Limits{MaxObjectBytes: int(s.Limits.MaxObjectBytes)},
	}); err != nil {
		return err
	}
	c.decides, c.inProcess = true, true
	if err := c.addCache(cacheOptions(&s.Limits, c.client.ImmediateSource()), &s.Limits, discovery.Options{}); err != nil {
		return err
	}
	header := requestHeaderOptions(&so.KubeAPIServer.RequestHeader)
	header.NoDefaults = true
	anonymous, paths := origin.server.Anonymous()
	if err := c.addIdentity(authn.Options{
		TokenReviewer: reviews.Tokens(origin.server.AuthenticateToken), LocalTokenReviewer: origin.localTokens(),
		ClientCAs: origin.material.CA.CertPEM, ClientCAFile: s.Authentication.ClientCAFile,
		RequestHeader: header,
		Anonymous:     anonymous, AnonymousPaths: paths,
		UnverifiedReviews: tokenChecks, UnverifiedTokens: tokenChecks,
		SuccessTTL: s.Authentication.TokenTTL, FailureTTL: s.Authentication.TokenFailureTTL,
		Settings: review.Settings{CacheSize: s.Authentication.CacheSize, ReviewTimeout: tokenTimeout},
	}, authz.Options{
		Decider: reviews.Access{Server: origin.server}, TrustedByUpstream: true,
	}); err != nil {
		return err
	}
	options := proxy.Options{
		InProcess: true, CompressWatchLists: s.WatchListCompression, Audit: to.audit, Tracer: to.tracer,
		Policy: policy.Policy{Consistency: policy.Consistency{Default: policy.ModeStrict}, Limits: proxyLimits(&s.Limits)},
	}
	if fairness := origin.server.Fairness(); fairness != nil {
		options.Fairness = fairness
		if limits := &options.Policy.Limits; limits.InFlight > 0 { // so that all seats can be taken
			limits.InFlight = max(limits.InFlight, int64(s.PriorityAndFairness.MaxRequestsInFlight+s.PriorityAndFairness.MaxMutatingRequestsInFlight))
		}
	}
	c.addHandler(revocation.Options{}, options, origin.checks()...)
	origin.manager = c.manager
	origin.cache = c.health
	return nil
}

func (a *standalone) edgeOptions(c *config.Standalone, so *StandaloneOptions, registerer prometheus.Registerer) edge.Options {
	o := edgeOptions(&c.Limits, &c.Timeouts, so.Logger, registerer)
	o.MinTLSVersion, o.CipherSuites = c.TLS.MinVersion.ID(), c.TLS.CipherSuiteIDs()
	if c.TLS.CertFile == "" {
		o.GetCertificate = a.material.ServingCertificate
	}
	return o
}

// upstream is the origin as the proxy sees it.
func (a *standalone) upstream() *upstream.InProcess {
	own := server.Privileged()
	return &upstream.InProcess{
		Handler: a.server.Handler(),
		WithUser: func(ctx context.Context, u user.Info) context.Context {
			if u == nil {
				u = own
			}
			return server.WithUser(ctx, u)
		},
		Track: func(ctx context.Context) (context.Context, upstream.Progress) {
			ctx, tracker := registry.Track(ctx)
			return ctx, progress{tracker}
		},
	}
}

// progressWait is how long a read waits for the store to say how far a watch is.
const progressWait = 3 * time.Second

// readyWait is how long a store elsewhere has to answer before it is said not to be
// ready: probes wait for a second or a few.
const readyWait = 800 * time.Millisecond

// tokenTimeout bounds the check of a token. It is longer than the library waits for a webhook (package
// token/cache: sharedLookupTimeout).
const tokenTimeout = 40 * time.Second

// tokenChecks is how many tokens that are not cached are checked at a time: as many requests as
// kube-apiserver serves. If their webhook hangs, only tokens that need it get 429 (localTokens).
const tokenChecks = 600

// localTokens reviews tokens without the token webhook; nil if there is none.
func (a *standalone) localTokens() authn.TokenReviewer {
	if review := a.server.AuthenticateLocalToken(); review != nil {
		return reviews.Tokens(review)
	}
	return nil
}

// progress is a watch of the origin as the proxy knows it.
type progress struct{ tracker *registry.Tracker }

// Current implements upstream.Progress. A watch that no store of the origin knows is
// that of an aggregated API server.
func (p progress) Current(ctx context.Context) (last, current uint64, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	last, current, shared, err = p.tracker.Current(ctx)
	if errors.Is(err, registry.ErrNotWatching) {
		err = fmt.Errorf("%w: %w", source.ErrUnsupported, err)
	}
	return last, current, shared, err
}

// start runs the origin and writes the kubeconfig.
func (a *standalone) start(ctx, background context.Context) error {
	if err := a.server.Start(ctx); err != nil {
		return err
	}
	if a.kubeconfig != "" {
		if err := a.material.WriteKubeconfig(a.kubeconfig, a.url); err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
	}
	if a.accounts != nil {
		a.panics.Keep(&a.background, "background", func() { a.accounts.Run(background) })
	}
	if a.testAPI != nil {
		if err := a.testAPI.Snapshots.Save(ctx, testapi.Initial); err != nil {
			return fmt.Errorf("--test-api: %w", err)
		}
	}
	for name, run := range a.controllers {
		a.panics.Go(&a.background, "background", func() {
			err := a.panics.Func("background", func() error { return run(background) })()
			if background.Err() == nil {
				a.fail(fmt.Errorf("%s: %w", name, cmp.Or(err, errEnded)))
			}
		})
	}
	return nil
}

var errEnded = errors.New("ended by itself")

// fail reports the first error to Failed.
func (a *standalone) fail(err error) {
	a.log.Error("a part of the server failed", "error", err)
	select {
	case a.failed <- err:
	default:
	}
}

// addTestAPI makes the test API.
func (a *standalone) addTestAPI(c *config.Standalone) error {
	if !admin.Loopback(c.AdminListen) {
		return errors.New("--test-api: anybody who reaches the admin listener could delete all objects; set --admin-listen to a loopback address")
	}
	a.testAPI = &testapi.API{Snapshots: testapi.NewSnapshots(a.engine, c.Etcd.Prefix, c.EventTTL), Faults: testapi.NewFaults(), Clock: a.clock}
	return nil
}

// withFaults returns the handler with the faults of the test API.
func (a *standalone) withFaults(h api.Handler) api.Handler {
	if a.testAPI == nil {
		return h
	}
	return a.testAPI.Faults.Wrap(h)
}

func (a *standalone) listen(e *edge.Server) (edge.Addresses, error) {
	return edge.Addresses{Secure: a.listener.Addr()}, e.Serve(a.listener, api.ListenerSecure)
}

func (a *standalone) announce(stderr io.Writer, _ edge.Addresses) {
	if a.kubeconfig != "" {
		fmt.Fprintf(stderr, "kubeweir: export KUBECONFIG=%s\n", a.kubeconfig)
	}
}

// withdraw ends that other programs choose this server.
func (a *standalone) withdraw() { a.server.Withdraw() }

func (a *standalone) checks() []healthz.Check {
	return []healthz.Check{{Name: "store", Err: a.storeError}}
}

// storeError returns an error if the store is not healthy.
func (a *standalone) storeError() error {
	if store, ok := a.engine.(interface{ Err() error }); ok {
		return store.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	_, err := a.engine.CurrentRevision(ctx)
	return err
}

// close ends the origin, then the store.
func (a *standalone) close() {
	a.background.Wait()
	if a.fake != nil {
		a.fake.Close()
	}
	if a.listener != nil {
		_ = a.listener.Close()
	}
	if a.server != nil {
		_ = a.server.Close()
	}
	if a.encryption != nil {
		a.encryption.Close()
	}
	if a.engine != nil {
		_ = a.engine.Close()
	}
}

// Failed receives an error if the controllers or the scheduler have failed. They can only run again in
// a new process.
func (s *Standalone) Failed() <-chan error { return s.origin.failed }

// URL is the address for clients on this machine.
func (s *Standalone) URL() string { return s.origin.url }

// Material is the server's keys and certificates.
func (s *Standalone) Material() *pki.Material { return s.origin.material }

// RESTConfig is for the administrator. The caller may change it.
func (s *Standalone) RESTConfig() *rest.Config {
	return s.origin.material.RESTConfig(s.origin.url, s.origin.material.Admin)
}
