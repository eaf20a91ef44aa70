package aggregator

import (
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/transport"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	library "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	availabilitymetrics "k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	generatedopenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	apiservicerest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kube-openapi/pkg/common"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-aggregator/pkg/controllers/openapi"
	aggregator2 "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	"k8s.io/kube-aggregator/pkg/controllers/openapiv3"
	aggregator3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
	"github.com/kubeweir/kubeweir/origin/registry"
)

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
		}, cfg.Generic.ResourceTransformers)

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

// installDocuments serves the documents from m. The delegates must be complete.
func (s *Server) installDocuments(m *mux.PathRecorderMux) error {
	container, group := s.Generic.Handler.GoRestfulContainer, group(s.cfg)
	downloader := aggregator2.NewDownloader()
	specs, err := aggregator2.BuildAndRegisterAggregator(&downloader, s.Generic.NextDelegate(), container.RegisteredWebServices(), group.V2(), m)
	if err != nil {
		return fmt.Errorf("OpenAPI v2: %w", err)
	}
	s.documents.v2 = openapi.NewAggregationController(&downloader, specs)

	v3 := mux.NewPathRecorderMux("origin/aggregator openapi v3")
	s.documents.specs, err = aggregator3.BuildAndRegisterAggregator(aggregator3.NewDownloader(), s.Generic.NextDelegate(), container, group.V3(), v3)
	if err != nil {
		return fmt.Errorf("OpenAPI v3: %w", err)
	}
	s.documents.v3 = openapiv3.NewAggregationController(remotesOnly{s.documents.specs})
	renewed := s.documents.renewed(v3)
	m.Handle("/openapi/v3", renewed)
	m.HandlePrefix("/openapi/v3/", renewed)
	return nil
}
