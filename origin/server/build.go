package server

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/aggregator"
	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/builtin/admit"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
	"github.com/kubeweir/kubeweir/origin/crd"
	"github.com/kubeweir/kubeweir/origin/fairness"
	"github.com/kubeweir/kubeweir/origin/internal/extension"
	"github.com/kubeweir/kubeweir/origin/registry"
)

// A builder makes the links of the chain, from the last to the first.
type builder struct {
	*Server
	config   *rest.Config
	dynamic  dynamic.Interface
	generic  *genericapiserver.Config
	storage  serverstorage.StorageFactory
	registry registry.Options
	resolver resolver
	// proxy reaches pods, services and webhooks: by address, so that a name in a
	// certificate proves nothing.
	proxy *http.Transport
}

// FlagError is the error of New if a file or setting of Options is at fault.
type FlagError = access.FlagError

func (s *Server) build() error {
	b := &builder{Server: s, config: s.loopback.config(s.opts), proxy: groups.NewProxyTransport()}
	for _, step := range []func() error{b.addClients, b.addConfig, b.addAccess, b.addAdmission, b.addChain} {
		if err := step(); err != nil {
			if flag := new(FlagError); errors.As(err, &flag) {
				return flag
			}
			return fmt.Errorf("origin/server: %w", err)
		}
	}
	return nil
}

// addClients creates the clients and informers of this process. The informers drop managed fields,
// which are a third of an object and not used here.
func (b *builder) addClients() error {
	var err error
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	untyped := rest.CopyConfig(b.config)
	untyped.ContentConfig = rest.ContentConfig{}
	if b.dynamic, err = dynamic.NewForConfig(untyped); err != nil {
		return fmt.Errorf("client of any type: %w", err)
	}
	b.informers = informers.NewSharedInformerFactoryWithOptions(b.client, resync, informers.WithTransform(
		func(object any) (any, error) {
			if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
				accessor.SetManagedFields(nil)
			}
			return object, nil
		}))
	b.resolver = resolver{b.client, b.opts.AdvertiseAddress}
	return nil
}

// addConfig creates the configuration that all servers of the chain share.
func (b *builder) addConfig() error {
	c := groups.NewGenericConfig(b.opts.AdvertiseAddress, b.opts.ServiceCIDRs[0], b.opts.Resources)
	c.LoopbackClientConfig = b.config
	c.LongRunningFunc = longRunning(c.LongRunningFunc)
	b.addLimits(c)
	c.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return b.chain(handler, c)
	}
	b.addHealth(c)
	if b.opts.Flags != nil {
		c.Flagz = flags(b.opts.Flags)
	}
	b.registry = registry.Options{Engine: b.opts.Engine, Progress: b.progress}
	if b.opts.Encryption != nil {
		if err := b.opts.Encryption.Apply(c); err != nil {
			return err
		}
	}
	var err error
	if b.storage, err = groups.NewStorageFactory(c, b.opts.StoragePrefix); err != nil {
		return err
	}
	c.RESTOptionsGetter = groups.NewRESTOptions(b.storage, registry.Decorator(b.registry), c.ResourceTransformers)
	b.generic = c
	return nil
}

// addLimits limits the requests that are served at a time.
func (b *builder) addLimits(c *genericapiserver.Config) {
	limits := b.opts.Requests
	c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = limits.MaxRequestsInFlight, limits.MaxMutatingRequestsInFlight
	if !limits.Enabled {
		return
	}
	b.fairness = fairness.New(fairness.Options{
		Informers: b.informers, Client: b.client.FlowcontrolV1(),
		Seats: limits.MaxRequestsInFlight + limits.MaxMutatingRequestsInFlight, LongRunning: c.LongRunningFunc, WaitLimit: c.RequestTimeout / 4,
		Count: b.opts.CountObjects,
	})
	c.FlowControl = b.fairness // adds its health checks and debug paths
}

// flags implements flagz.Reader.
type flags map[string]string

func (f flags) GetFlagz() map[string]string { return f }

func (b *builder) addAccess() error {
	id := b.opts.Identity
	var err error
	b.access, err = access.New(b.stopped, access.Config{
		ClientCA:          id.ClientCA,
		PublishedClientCA: id.PublishedClientCA,
		RequestHeader:     id.RequestHeader,
		TokenFile:         id.TokenFile,
		BootstrapTokens:   id.BootstrapTokens,
		UncachedTokens:    id.UncachedTokens,
		Anonymous:         !id.DisableAnonymous,
		AnonymousIsSet:    id.AnonymousIsSet,
		Authentication:    id.Authentication,
		Issuers:           append([]string{id.Issuer}, id.AcceptedIssuers...),
		Audiences:         id.Audiences,
		SigningKey:        id.ServiceAccountKey,
		PublicKeys:        id.ServiceAccountPublicKeys,
		AlwaysAllow:       id.AlwaysAllow,
		Nodes:             id.AuthorizeNodes,
		Authorization:     id.Authorization,
		Client:            b.client,
		Informers:         b.informers,
	})
	if err != nil {
		return err
	}
	b.generic.Authentication = genericapiserver.AuthenticationInfo{
		APIAudiences:        b.access.Audiences,
		Authenticator:       vouched(b.access.Authenticator, b.access.Audiences),
		RequestHeaderConfig: b.access.RequestHeader,
	}
	b.generic.Authorization.Authorizer = b.access.Authorizer
	b.generic.RuleResolver = b.access.RuleResolver
	return nil
}

func (b *builder) addAdmission() error {
	var err error
	b.generic.AdmissionControl, err = admit.New(b.stopped, admit.Config{
		Loopback:        b.config,
		Client:          b.client,
		Dynamic:         b.dynamic,
		Informers:       b.informers,
		Authorizer:      b.access.Authorizer,
		ServiceResolver: b.resolver,
		ProxyTransport:  b.proxy,
		Drained:         b.stopped.Done(),
		APIResources:    b.generic.MergedResourceConfig,
		Enable:          b.opts.EnableAdmission,
		Disable:         b.opts.DisableAdmission,
		Logger:          b.opts.Logger,
	})
	return err
}

// addChain creates the servers of the chain: 404, custom resources, the built-in groups, the
// aggregator (k8s.io/kubernetes/cmd/kube-apiserver/app, CreateServerChain).
func (b *builder) addChain() error {
	notFound := notfoundhandler.New(b.generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	crds, err := crd.New(crd.Config{
		Generic:             *b.generic,
		Informers:           b.informers,
		Registry:            b.registry,
		Prefix:              b.opts.StoragePrefix,
		Delegate:            genericapiserver.NewEmptyDelegateWithCustomHandler(notFound),
		ServiceResolver:     b.resolver,
		AuthResolverWrapper: b.conversions(),
		Logger:              b.opts.Logger,
	})
	if err != nil {
		return err
	}
	b.crds = crds
	kube, err := b.builtin(crds.Generic)
	if err != nil {
		return err
	}
	b.aggregator, err = aggregator.New(aggregator.Config{
		Generic:         *b.generic,
		Informers:       b.informers,
		Registry:        b.registry,
		Prefix:          b.opts.StoragePrefix,
		Delegate:        kube,
		CRDs:            crds.CRDs,
		ServiceResolver: b.resolver,
		ProxyTransport:  b.proxy,
		ProxyClientCert: b.opts.ProxyClientCert,
		ProxyClientKey:  b.opts.ProxyClientKey,
		Logger:          b.opts.Logger,
	})
	if err != nil {
		return err
	}
	return b.aggregator.Prepare()
}

// conversions is how conversion webhooks are reached.
func (b *builder) conversions() webhook.AuthenticationInfoResolverWrapper {
	reach := webhook.NewDefaultAuthenticationInfoResolverWrapper(b.proxy, nil, b.config, b.generic.TracerProvider)
	bound := extension.Webhooks(extension.ConversionResponse)
	return func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return bound(reach(r)) }
}

func (b *builder) builtin(delegate genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
	config := *b.generic
	kube, err := config.Complete(b.informers).New("kube-apiserver", delegate)
	if err != nil {
		return nil, err
	}
	// Unlisted, because kube-apiserver's list of paths does not have it.
	kube.Handler.NonGoRestfulMux.UnlistedHandle(api.SnapshotPath, http.HandlerFunc(b.serveSnapshot))
	return kube, groups.Install(kube, &config, groups.Config{
		RESTOptions:      config.RESTOptionsGetter,
		Check:            b.bootCheck,
		Storage:          b.storage,
		Client:           b.client,
		Informers:        b.informers,
		Loopback:         b.config,
		Authenticator:    config.Authentication.Authenticator,
		Audiences:        b.access.Audiences,
		Authorizer:       b.access.Authorizer,
		RuleResolver:     b.access.RuleResolver,
		Tokens:           b.access.Tokens,
		PublicKeys:       b.access.PublicKeys,
		Issuer:           b.opts.Identity.Issuer,
		JWKSURI:          b.opts.Identity.JWKSURI,
		TokenExpiration:  groups.TokenExpiration{Max: b.opts.Identity.MaxTokenExpiration, NotExtended: b.opts.Identity.NoExtendedTokens},
		EventTTL:         b.opts.EventTTL,
		ServiceCIDRs:     b.opts.ServiceCIDRs,
		NodePorts:        b.opts.NodePorts.library(),
		ProxyTransport:   b.proxy,
		EndpointSlices:   b.resolver,
		KubeletCertFile:  b.opts.Kubelet.CertFile,
		KubeletKeyFile:   b.opts.Kubelet.KeyFile,
		KubeletCAFile:    b.opts.Kubelet.CAFile,
		KubeletAddresses: b.opts.Kubelet.AddressTypes,
	}, b.opts.Logger)
}
