package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/origin/builtin/accounts"
	"github.com/kubeweir/kubeweir/origin/pki"
	"github.com/kubeweir/kubeweir/origin/registry"
	"github.com/kubeweir/kubeweir/origin/server"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// StandaloneOptions are what the configuration does not say.
type StandaloneOptions struct {
	// InMemory keeps nothing on disk: objects, keys and certificates end with the
	// process, and the data folder is not used. For tests.
	InMemory bool
	// UserAgent is that of the gateway's own requests to the origin.
	UserAgent string
	// Logger is required.
	Logger *slog.Logger
}

// standalone is the origin and what belongs to it.
type standalone struct {
	material   *pki.Material
	engine     storage.Engine
	server     *server.Server
	accounts   *accounts.Controller // nil where Pods need no service account
	listener   net.Listener
	kubeconfig string // absolute path, "" in memory
	url        string // for clients on this machine
	slack      []byte // see garbageSlack
}

// garbageSlack is how many bytes of garbage may pile up besides as much as there is in
// use, before it is collected. Of a server that keeps little in memory, whose writes
// leave a hundred times as much behind, the collector takes an eighth of the processor.
// It is nothing but a claim to memory, which is never touched and so never there; the
// runtime counts it all the same, so there is none where GOMEMLIMIT is set.
const garbageSlack = 64 << 20

func newSlack() []byte {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return nil
	}
	return make([]byte, garbageSlack)
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
func NewStandalone(ctx context.Context, c *config.Standalone, o StandaloneOptions) (_ *Server, err error) {
	s := newServer(o.Logger, c.AdminListen, c.Profiling, c.Shutdown, buildInfo("standalone", o.UserAgent))
	s.standalone = &standalone{slack: newSlack()}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.standalone.open(ctx, c, o, s.registry); err != nil {
		return nil, err
	}
	if s.client, err = upstream.New(upstream.Options{
		InProcess: s.standalone.upstream(), UserAgent: o.UserAgent, Logger: o.Logger, Registerer: s.registry,
		Limits: upstream.Limits{MaxObjectBytes: int(c.Limits.MaxObjectBytes)},
	}); err != nil {
		return nil, err
	}
	s.decides = true
	s.discovery = s.client.Discovery(upstream.DiscoveryOptions{})
	if err := s.addCache(cacheOptions(&c.Limits, s.client.PromptSource(), o.Logger, s.registry), &c.Limits); err != nil {
		return nil, err
	}
	if err := s.addAudit(&c.Audit); err != nil {
		return nil, err
	}
	authenticator, err := identity.NewAuthenticator(identity.AuthenticatorOptions{
		TokenReviewer: tokenReviewer{s.standalone.server},
		ClientCAs:     s.standalone.material.CA.CertPEM, ClientCAFile: c.Authentication.ClientCAFile,
		Anonymous:  c.Authentication.Anonymous,
		SuccessTTL: c.Authentication.TokenTTL, FailureTTL: c.Authentication.TokenFailureTTL, CacheSize: c.Authentication.CacheSize,
		Registerer: s.registry, Log: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.authorizer = identity.NewAuthorizer(identity.AuthorizerOptions{
		Decider: decider{s.standalone.server}, TrustedByUpstream: true, Registerer: s.registry,
	})
	return s, s.addHandler(authenticator, identity.WatchesOptions{},
		proxy.Options{InProcess: true, CompressWatchLists: c.WatchListCompression, Consistency: proxy.Consistency{Default: proxy.ModeStrict}, Limits: proxyLimits(&c.Limits)},
		s.standaloneEdgeOptions(c, &o),
	)
}

func (s *Server) standaloneEdgeOptions(c *config.Standalone, so *StandaloneOptions) edge.Options {
	o := edgeOptions(&c.Limits, &c.Timeouts, s.log, s.registry)
	if so.InMemory {
		o.ThreadWait = false // the clients of a test are in its process
	}
	if c.TLS.CertFile != "" {
		o.CertFile, o.KeyFile = c.TLS.CertFile, c.TLS.PrivateKeyFile
	} else {
		o.GetCertificate = s.standalone.material.ServingCertificate
	}
	return o
}

// open opens the store, makes the key material, listens and builds the origin.
func (a *standalone) open(ctx context.Context, c *config.Standalone, o StandaloneOptions, registerer prometheus.Registerer) (err error) {
	// Before anything is made: a port that is in use is to leave nothing behind.
	if a.listener, err = net.Listen("tcp", c.Listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := a.openStore(ctx, c, o, registerer); err != nil {
		return err
	}
	advertised, err := advertise(c, a.listener.Addr())
	if err != nil {
		return err
	}
	services, err := netip.ParsePrefix(c.Services.ClusterIPRange)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	if err := a.openMaterial(c, o, advertised.Addr(), services); err != nil {
		return err
	}
	return a.build(c, o, advertised, services, registerer)
}

// openStore opens etcd, or the store in the data folder.
func (a *standalone) openStore(ctx context.Context, c *config.Standalone, o StandaloneOptions, registerer prometheus.Registerer) (err error) {
	if len(c.Etcd.Servers) > 0 {
		a.engine, err = etcd.Open(ctx, etcd.Options{
			Endpoints: c.Etcd.Servers, CAFile: c.Etcd.CAFile, CertFile: c.Etcd.CertFile, KeyFile: c.Etcd.KeyFile,
			Logger: o.Logger, Registerer: registerer,
		})
		if err != nil {
			a.engine = nil
			return fmt.Errorf("--etcd-servers: %w", err)
		}
		return nil
	}
	options := embedded.Options{Dir: filepath.Join(c.DataDir, storeFolder), Logger: o.Logger, Registerer: registerer}
	if o.InMemory {
		options.Dir, options.FS = storeFolder, vfs.NewMem()
	} else if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	engine, err := embedded.Open(options)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	a.engine = engine
	return nil
}

// openMaterial makes or loads keys and certificates.
func (a *standalone) openMaterial(c *config.Standalone, o StandaloneOptions, address netip.Addr, services netip.Prefix) (err error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	options := pki.Options{Hosts: []string{host, address.String()}, ServiceIP: services.Masked().Addr().Next()}
	if name, err := os.Hostname(); err == nil {
		options.Hosts = append(options.Hosts, name)
	}
	_, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil {
		return err
	}
	a.url = "https://" + net.JoinHostPort(clientHost(host), port)
	if o.InMemory {
		a.material, err = pki.InMemory(options)
		return err
	}
	if a.material, err = pki.Open(filepath.Join(c.DataDir, pkiFolder), options); err != nil {
		return err
	}
	a.kubeconfig, err = filepath.Abs(filepath.Join(c.DataDir, kubeconfig))
	return err
}

// clientHost is the host by which clients on this machine reach a listener.
func clientHost(listen string) string {
	if ip := net.ParseIP(listen); listen == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return listen
}

// advertise is the address at which others reach the listener.
func advertise(c *config.Standalone, bound net.Addr) (netip.AddrPort, error) {
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("--listen: %s is no TCP address", bound)
	}
	port := uint16(tcp.Port)
	if c.AdvertiseAddress != "" {
		ip, err := netip.ParseAddr(c.AdvertiseAddress)
		return netip.AddrPortFrom(ip, port), err
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !ip.IsUnspecified() {
		return netip.AddrPortFrom(ip, port), nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--advertise-address is needed: %w", err)
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			return netip.AddrPortFrom(prefix.Addr().Unmap(), port), nil
		}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), nil
}

// build makes the origin's server.
func (a *standalone) build(c *config.Standalone, o StandaloneOptions, advertised netip.AddrPort, services netip.Prefix, registerer prometheus.Registerer) error {
	clientCA := a.material.CA.CertPEM
	if file := c.Authentication.ClientCAFile; file != "" {
		more, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		clientCA = append(append([]byte(nil), clientCA...), more...)
	}
	from, to, err := config.ParsePortRange(c.Services.NodePortRange)
	if err != nil {
		return fmt.Errorf("--service-node-port-range %w", err)
	}
	kubeletCert, kubeletKey := a.material.KubeletClientFiles()
	a.server, err = server.New(server.Options{
		Engine: a.engine,
		Identity: server.Identity{
			ClientCA:                  clientCA,
			RequestHeaderCA:           a.material.FrontProxyCA.CertPEM,
			RequestHeaderAllowedNames: []string{pki.FrontProxyUser},
			TokenFile:                 c.Authentication.TokenAuthFile,
			DisableAnonymous:          !c.Authentication.Anonymous,
			ServiceAccountKey:         a.material.ServiceAccountKey,
		},
		AdvertiseAddress: advertised, ServiceCIDR: services,
		NodePorts:     server.PortRange{Base: from, Size: to - from + 1},
		StoragePrefix: c.Etcd.Prefix, EventTTL: c.EventTTL,
		EnableAdmission: c.Admission.EnablePlugins, DisableAdmission: c.Admission.DisablePlugins,
		Kubelet:         server.KubeletClient{CertFile: kubeletCert, KeyFile: kubeletKey},
		ProxyClientCert: a.material.FrontProxyClient.CertPEM, ProxyClientKey: a.material.FrontProxyClient.KeyPEM,
		Logger: o.Logger, Registerer: registerer,
	})
	if err != nil || slices.Contains(c.Admission.DisablePlugins, "ServiceAccount") {
		return err
	}
	a.accounts, err = accounts.New(a.server.Loopback())
	return err
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

// progress is a watch of the origin as the proxy knows it.
type progress struct{ tracker *registry.Tracker }

// Current implements upstream.Progress. A watch that no store of the origin knows is
// that of an aggregated API server.
func (p progress) Current(ctx context.Context) (last, current uint64, shared bool, err error) {
	patient := lazyTimeout{Context: ctx, limit: progressWait}
	defer patient.end()
	last, current, shared, err = p.tracker.Current(&patient)
	if errors.Is(err, registry.ErrNotWatching) {
		err = fmt.Errorf("%w: %w", cache.ErrUnsupported, err)
	}
	return last, current, shared, err
}

// start runs the origin and writes the kubeconfig.
func (a *standalone) start(ctx context.Context) error {
	if err := a.server.Start(ctx); err != nil {
		return err
	}
	if a.kubeconfig == "" {
		return nil
	}
	if err := a.material.WriteKubeconfig(a.kubeconfig, a.url); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// storeError tells whether the store is well.
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
	if a.listener != nil {
		_ = a.listener.Close()
	}
	if a.server != nil {
		_ = a.server.Close()
	}
	if a.engine != nil {
		_ = a.engine.Close()
	}
}

// URL is the address of a standalone server for clients on this machine.
func (s *Server) URL() string { return s.standalone.url }

// Material is a standalone server's keys and certificates.
func (s *Server) Material() *pki.Material { return s.standalone.material }

// RESTConfig is for the administrator of a standalone server. The caller may change it.
func (s *Server) RESTConfig() *rest.Config {
	return s.standalone.material.RESTConfig(s.standalone.url, s.standalone.material.Admin)
}
