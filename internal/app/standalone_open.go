package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app/certs"
	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/builtin/accounts"
	"github.com/kubeweir/kubeweir/origin/builtin/controllers"
	"github.com/kubeweir/kubeweir/origin/builtin/encryption"
	"github.com/kubeweir/kubeweir/origin/builtin/fakenodes"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
	"github.com/kubeweir/kubeweir/origin/pki"
	"github.com/kubeweir/kubeweir/origin/server"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/origin/testapi"
)

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
	services, err := config.ParseServiceRanges(c.Services.ClusterIPRange)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range %w", err)
	}
	if err := a.openMaterial(c, o, advertised.Addr(), services[0]); err != nil {
		return err
	}
	return a.build(c, o, advertised, services, registerer)
}

// openStore opens etcd, or the store in the data folder.
func (a *standalone) openStore(ctx context.Context, c *config.Standalone, o StandaloneOptions, registerer prometheus.Registerer) (err error) {
	if len(c.Etcd.Servers) > 0 {
		if o.ObjectsInMemory {
			return errors.New("--in-memory: the objects are in etcd because of --etcd-servers; leave one of them out")
		}
		a.engine, err = etcd.Open(ctx, etcd.Options{
			Endpoints: c.Etcd.Servers, CAFile: c.Etcd.CAFile, CertFile: c.Etcd.CertFile, KeyFile: c.Etcd.KeyFile,
			CompactionInterval: o.KubeAPIServer.HistoryAge, Logger: o.Logger, Registerer: registerer,
		})
		if err != nil {
			a.engine = nil
			return fmt.Errorf("--etcd-servers: %w", err)
		}
		return nil
	}
	options := embedded.Options{Dir: filepath.Join(c.DataDir, storeFolder), HistoryAge: o.KubeAPIServer.HistoryAge, Logger: o.Logger, Registerer: registerer}
	if o.NoDataDir || o.ObjectsInMemory {
		options.Dir, options.FS = storeFolder, vfs.NewMem()
	}
	if o.TestAPI {
		a.clock = testapi.NewClock()
		options.Clock = a.clock
	}
	if !o.NoDataDir {
		err = os.MkdirAll(c.DataDir, 0o700)
	}
	if err != nil {
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
	a.url = "https://" + net.JoinHostPort(certs.ClientHost(host), port)
	if o.NoDataDir {
		a.material, err = pki.InMemory(options)
	} else {
		a.material, err = pki.Open(filepath.Join(c.DataDir, pkiFolder), options)
	}
	if err == nil && c.TLS.CertFile != "" {
		a.material.ServingRoots, err = os.ReadFile(c.TLS.CertFile)
	}
	if err != nil || o.NoDataDir {
		return err
	}
	a.kubeconfig, err = filepath.Abs(filepath.Join(c.DataDir, kubeconfig))
	return err
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
	if ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if chosen, err := utilnet.ResolveBindAddress(nil); err == nil { // else there is no route
			ip, _ = netip.AddrFromSlice(chosen)
		}
	}
	return netip.AddrPortFrom(ip.Unmap(), port), nil
}

// permitsEndpoints reports whether the API permits ip in the endpoints of the Service kubernetes.
func permitsEndpoints(ip netip.Addr) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast()
}

// build makes the origin's server.
func (a *standalone) build(c *config.Standalone, o StandaloneOptions, advertised netip.AddrPort, services []netip.Prefix, registerer prometheus.Registerer) error {
	clientCA := a.material.CA.CertPEM
	var published []byte
	if file := c.Authentication.ClientCAFile; file != "" {
		more, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		clientCA = append(append([]byte(nil), clientCA...), more...)
		if o.KubeAPIServer.PublishClientCAFile {
			published = more
		}
	}
	resources, err := groups.Resources(o.KubeAPIServer.RuntimeConfig)
	if err != nil {
		return fmt.Errorf("--runtime-config: %w", err)
	}
	proxies, err := a.frontProxy(&o.KubeAPIServer)
	if err != nil {
		return err
	}
	from, to, err := config.ParsePortRange(c.Services.NodePortRange)
	if err != nil {
		return fmt.Errorf("--service-node-port-range %w", err)
	}
	if err := checkTokenFile(c.Authentication.TokenAuthFile); err != nil {
		return err
	}
	tokens := &c.Authentication.ServiceAccounts
	signingKey, publicKeys, err := certs.TokenKeys(tokens, a.material.ServiceAccountKey)
	if err != nil {
		return err
	}
	if file := c.Encryption.ProviderConfigFile; file != "" {
		if a.encryption, err = encryption.Load(file, c.Encryption.AutomaticReload); err != nil {
			return &server.FlagError{Flag: "encryption-provider-config", Value: file, Err: err}
		}
	}
	a.server, err = server.New(server.Options{
		Engine: a.engine,
		Identity: server.Identity{
			ClientCA:                 clientCA,
			PublishedClientCA:        published,
			RequestHeader:            proxies.header,
			TokenFile:                c.Authentication.TokenAuthFile,
			BootstrapTokens:          c.Authentication.BootstrapTokens,
			UncachedTokens:           true, // the authenticator in front caches the results
			Authentication:           externalAuthentication(&c.Authentication),
			DisableAnonymous:         !c.Authentication.Anonymous,
			AnonymousIsSet:           o.KubeAPIServer.AnonymousIsSet || !c.Authentication.Anonymous,
			ServiceAccountKey:        signingKey,
			ServiceAccountPublicKeys: publicKeys,
			Issuer:                   tokens.Issuer,
			AcceptedIssuers:          o.KubeAPIServer.AcceptedIssuers,
			JWKSURI:                  o.KubeAPIServer.JWKSURI,
			MaxTokenExpiration:       o.KubeAPIServer.MaxTokenExpiration,
			NoExtendedTokens:         o.KubeAPIServer.NoExtendedTokens,
			Audiences:                tokens.Audiences,
			AlwaysAllow:              c.Authorization.Mode == config.AuthorizeAlways,
			AuthorizeNodes:           c.Authorization.Mode == config.AuthorizeNodes,
			Authorization:            externalAuthorization(&c.Authorization),
		},
		AdvertiseAddress: advertised, NoEndpoints: o.KubeAPIServer.NoEndpoints || c.AdvertiseAddress != "" && !permitsEndpoints(advertised.Addr()), SharedStore: len(c.Etcd.Servers) > 0,
		ServiceCIDRs: services, Resources: resources,
		NodePorts:     server.PortRange{Base: from, Size: to - from + 1},
		StoragePrefix: c.Etcd.Prefix, Encryption: a.encryption, EventTTL: c.EventTTL,
		Requests:        (*server.RequestLimits)(&c.PriorityAndFairness),
		CountObjects:    func(gr schema.GroupResource) (objects, bytes int64, known bool) { return a.manager.CountObjects(gr) },
		EnableAdmission: c.Admission.EnablePlugins, DisableAdmission: c.Admission.DisablePlugins,
		Kubelet:         a.kubeletClient(&o.KubeAPIServer),
		ProxyClientCert: proxies.cert, ProxyClientKey: proxies.key,
		StoreHealth: a.storeError,
		CacheHealth: func() error { return a.cache.Err() },
		Flags:       c.FlagsInForce(), Program: o.UserAgent,
		Logger: o.Logger, Registerer: registerer,
	})
	if err != nil {
		return err
	}
	return a.addControllers(c, signingKey)
}

func externalAuthentication(a *config.StandaloneAuthentication) access.Authentication {
	required, _ := a.OIDC.Required()
	out := access.Authentication{ConfigFile: a.ConfigFile, OIDC: access.OIDC{
		IssuerURL: a.OIDC.IssuerURL, ClientID: a.OIDC.ClientID, CAFile: a.OIDC.CAFile,
		UsernameClaim: a.OIDC.UsernameClaim, UsernamePrefix: a.OIDC.UsernamePrefix,
		GroupsClaim: a.OIDC.GroupsClaim, GroupsPrefix: a.OIDC.GroupsPrefix,
		SigningAlgs: a.OIDC.SigningAlgs, RequiredClaims: required,
	}}
	if a.OIDC.IssuerURL == "" {
		out.OIDC = access.OIDC{}
	}
	if a.Webhook.ConfigFile != "" {
		out.Webhook = access.TokenWebhook(a.Webhook)
	}
	return out
}

// externalAuthorization returns nothing for the modes that server.Identity has.
func externalAuthorization(a *config.StandaloneAuthorization) (out access.Authorization) {
	switch {
	case a.ConfigFile != "":
		return access.Authorization{ConfigFile: a.ConfigFile}
	case a.Mode == config.AuthorizeRBAC, a.Mode == config.AuthorizeNodes, a.Mode == config.AuthorizeAlways:
		return access.Authorization{}
	}
	return access.Authorization{Modes: a.Modes(), Webhook: access.AccessWebhook(a.Webhook)}
}

// frontProxy is how the server authenticates to aggregated API servers, and what they learn about it.
type frontProxy struct {
	header    access.RequestHeader
	cert, key []byte
}

func (a *standalone) frontProxy(k *config.KubeAPIServer) (p frontProxy, err error) {
	if k.RequestHeader.CAFile == "" && k.ProxyClientCertFile == "" {
		return frontProxy{
			access.KubeadmRequestHeader(a.material.FrontProxyCA.CertPEM, pki.FrontProxyUser),
			a.material.FrontProxyClient.CertPEM, a.material.FrontProxyClient.KeyPEM,
		}, nil
	}
	h := &k.RequestHeader
	p.header = access.RequestHeader{
		AllowedNames: h.AllowedNames, UsernameHeaders: h.UsernameHeaders, UIDHeaders: h.UIDHeaders,
		GroupHeaders: h.GroupHeaders, ExtraHeaderPrefixes: h.ExtraHeaderPrefixes,
	}
	for file, content := range map[string]*[]byte{h.CAFile: &p.header.CA, k.ProxyClientCertFile: &p.cert, k.ProxyClientKeyFile: &p.key} {
		if file == "" {
			continue
		}
		if *content, err = os.ReadFile(file); err != nil {
			return p, err
		}
	}
	return p, nil
}

// kubeletClient returns how the server connects to kubelets.
func (a *standalone) kubeletClient(k *config.KubeAPIServer) server.KubeletClient {
	client := server.KubeletClient{
		CertFile: k.KubeletClientCertFile, KeyFile: k.KubeletClientKeyFile, CAFile: k.KubeletCAFile, AddressTypes: k.KubeletAddressTypes,
	}
	if client.CertFile == "" {
		client.CertFile, client.KeyFile = a.material.KubeletClientFiles()
	}
	return client
}

// addControllers makes the configured controllers, scheduler and simulated nodes.
func (a *standalone) addControllers(c *config.Standalone, tokenKey any) (err error) {
	client := a.server.Loopback()
	a.controllers = make(map[string]func(context.Context) error)
	noAccounts := slices.Contains(c.Admission.DisablePlugins, "ServiceAccount")
	if len(c.Controllers) > 0 {
		o := controllers.Options{Names: c.Controllers, Config: client, RootCA: a.material.Roots(), TokenKey: tokenKey, Logger: a.log}
		o.CACertFile, o.CAKeyFile = a.material.CAFiles()
		chosen, err := controllers.New(o)
		if err != nil {
			return fmt.Errorf("--controllers: %w", err)
		}
		a.controllers["controllers"] = chosen.Run
		noAccounts = noAccounts || chosen.ExcludeServiceAccounts()
	}
	if c.Scheduler {
		a.controllers["scheduler"] = func(ctx context.Context) error { return controllers.RunScheduler(ctx, client) }
	}
	if c.FakeNodes > 0 {
		if a.fake, err = fakenodes.New(client, c.FakeNodes, a.panics, a.log); err != nil {
			return err
		}
		a.controllers["fake nodes"] = a.fake.Run
	}
	if noAccounts {
		return nil
	}
	a.accounts, err = accounts.New(client)
	return err
}

// checkTokenFile reads the file of --token-auth-file, so that an error names the flag.
func checkTokenFile(file string) error {
	if file == "" {
		return nil
	}
	if _, err := tokenfile.NewCSV(file); err != nil {
		return &server.FlagError{Flag: "token-auth-file", Value: file, Err: err}
	}
	return nil
}
