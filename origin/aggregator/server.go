// Package aggregator is the outermost server of the origin: apiregistration.k8s.io, the
// list of all groups, and the way to API servers elsewhere that APIService objects name.
//
// It is the aggregator of kube-apiserver (k8s.io/kube-aggregator, pkg/apiserver.APIAggregator, and
// pkg/controlplane/apiserver/aggregator.go) assembled from the library's controllers. The library's
// own assembly watches all services and endpoint slices even if no APIService names one (remote.go),
// compares OpenAPI documents every second (openapi.go), and does not bound the responses of other
// API servers (origin/internal/extension). Sync reads the APIServices before the post-start hooks
// run, since the controllers would look for them only every 100 ms.
package aggregator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	library "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	apiserviceinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	availabilitymetrics "k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	generatedopenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	apiservicerest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
	"github.com/kubeweir/kubeweir/origin/registry"
)

// resync is the resync period, as in the library.
const resync = 5 * time.Minute

// Config configures a Server.
type Config struct {
	// Generic is the configuration shared by all servers of the chain; New changes its own copy.
	// Only the info and the security of its OpenAPI configs are used. Its BuildHandlerChainFunc
	// makes the filters that every request passes. Its AggregatedDiscoveryGroupManager is shared
	// by all servers.
	Generic genericapiserver.Config
	// Informers are the informers of the built-in types. Services and endpoint slices are read from
	// them once the first APIService names a service.
	Informers kubeinformers.SharedInformerFactory
	// Registry determines where APIServices are kept, Prefix ("/registry") begins
	// their keys.
	Registry registry.Options
	Prefix   string
	// Delegate is the next server: the built-in groups, before the custom resources.
	// Each serves its own /openapi/v2 and /openapi/v3.
	Delegate *genericapiserver.GenericAPIServer
	// CRDs are the definitions, whose groups become APIServices.
	CRDs crdinformers.CustomResourceDefinitionInformer
	// ServiceResolver finds the services that APIServices name, ProxyTransport dials
	// them; only its DialContext is used.
	ServiceResolver library.ServiceResolver
	ProxyTransport  *http.Transport
	// ProxyClientCert and ProxyClientKey, in PEM, authenticate this server to other API servers.
	// They may be empty.
	ProxyClientCert, ProxyClientKey []byte
	// Logger, default: slog.Default().
	Logger *slog.Logger
}

// Server is the aggregator.
type Server struct {
	// Generic is the outermost server: its Handler is the whole chain, its
	// post-start hooks are those of all servers. Destroy waits for the informers that
	// Sync began, after their context has ended.
	Generic *genericapiserver.GenericAPIServer
	// APIServices are not read before Sync.
	APIServices apiserviceinformers.APIServiceInformer

	cfg       Config
	clients   clientset.Interface
	informers informers.SharedInformerFactory
	dial      *transport.DialHolder
	// discovery fetches what the API servers elsewhere serve.
	discovery library.DiscoveryAggregationController
	documents documents
	remote    *remote
	metrics   *availabilitymetrics.Metrics

	routes struct {
		sync.Mutex
		// proxies by the name of the APIService.
		proxies map[string]*proxyHandler
		// versions of each group that has a route.
		versions map[string]sets.Set[string]
	}
}

// New builds a server. Nothing runs before Sync and the post-start hooks of Generic.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	config := genericConfig(cfg)
	recommended := genericapiserver.RecommendedConfig{Config: config, SharedInformerFactory: cfg.Informers}
	completed := recommended.Complete()
	completed.EnableDiscovery = false // apis.go

	generic, err := completed.New("kube-aggregator", cfg.Delegate)
	if err != nil {
		return nil, fmt.Errorf("origin/aggregator: %w", err)
	}
	clients, err := clientset.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("origin/aggregator: client: %w", err)
	}
	s := &Server{
		Generic:   generic,
		cfg:       cfg,
		clients:   clients,
		informers: informers.NewSharedInformerFactory(clients, resync),
		metrics:   availabilitymetrics.New(),
	}
	s.APIServices = s.informers.Apiregistration().V1().APIServices()
	s.routes.proxies = map[string]*proxyHandler{}
	s.routes.versions = map[string]sets.Set[string]{}
	if cfg.ProxyTransport != nil && cfg.ProxyTransport.DialContext != nil {
		s.dial = &transport.DialHolder{Dial: cfg.ProxyTransport.DialContext}
	}
	generic.RegisterDestroyFunc(s.informers.Shutdown)
	s.remote = &remote{server: s}

	installed := apiservicerest.NewRESTStorage(config.MergedResourceConfig, config.RESTOptionsGetter, false)
	if err := generic.InstallAPIGroup(&installed); err != nil {
		return nil, fmt.Errorf("origin/aggregator: %w", err)
	}
	*config.OpenAPIV3Config = common.OpenAPIV3Config{}
	s.installRoot()
	s.discovery = library.NewDiscoveryManager(generic.AggregatedDiscoveryGroupManager.WithSource(aggregated.AggregatorSource))
	if err := s.addHooks(); err != nil {
		return nil, fmt.Errorf("origin/aggregator: %w", err)
	}
	return s, nil
}

// genericConfig is cfg.Generic as CreateAggregatorConfig changes it.
func genericConfig(cfg Config) genericapiserver.Config {
	config := cfg.Generic
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	config.MergedResourceConfig = library.DefaultAPIResourceConfigSource()
	codec := scheme.Codecs.LegacyCodec(apiregistration.SchemeGroupVersion, v1beta1.SchemeGroupVersion)
	// Discovery tells a hash of the stored version.
	version := runtime.NewMultiGroupVersioner(apiregistration.SchemeGroupVersion, schema.GroupKind{Group: v1beta1.GroupName})
	config.RESTOptionsGetter = registry.NewRESTOptionsGetter(registry.Decorator(cfg.Registry),
		func(resource schema.GroupResource, _ runtime.Object) (*storagebackend.ConfigForResource, string, error) {
			stored := storagebackend.Config{Prefix: cfg.Prefix, Codec: codec, EncodeVersioner: version, Transformer: identity.NewEncryptCheckTransformer()}
			return stored.ForResource(resource), resource.Group + "/" + resource.Resource, nil
		})

	// The types of one group, where the schema of cfg.Generic would be of all. It is
	// dropped when the group is installed.
	config.SkipOpenAPIInstallation = true
	config.OpenAPIConfig = nil
	config.OpenAPIV3Config = group(cfg).V3()
	return config
}

func group(cfg Config) schemas.Group {
	return schemas.Group{Definitions: generatedopenapi.GetOpenAPIDefinitions, Scheme: scheme.Scheme, Config: &cfg.Generic}
}

// Prepare installs what PrepareRun of the libraries would: OpenAPI and the health
// endpoints of all servers. After it the handler serves.
func (s *Server) Prepare() error {
	if err := s.installDocuments(s.Generic.Handler.NonGoRestfulMux); err != nil {
		return fmt.Errorf("origin/aggregator: %w", err)
	}
	s.Generic.PrepareRun()
	return nil
}

// Sync reads the APIServices and returns when they are known. It is called once, when
// Generic's LoopbackClientConfig can be used and before the post-start hooks run. ctx
// ends what it begins, too.
func (s *Server) Sync(ctx context.Context) error {
	s.informers.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", s.APIServices.Informer().HasSyncedChecker()) {
		return fmt.Errorf("origin/aggregator: reading the APIServices: %w", context.Cause(ctx))
	}
	return nil
}
