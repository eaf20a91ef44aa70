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
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	library "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	apiserviceinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	availabilitymetrics "k8s.io/kube-aggregator/pkg/controllers/status/metrics"

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

// remote keeps the Available condition of the APIServices that name a service. It
// watches all services and endpoint slices for that, so it begins with the first such
// APIService.
type remote struct {
	server *Server

	mu struct {
		sync.Mutex
		// ctx is nil before the post-start hook.
		ctx context.Context
		// wanted is set by the first APIService with a service.
		wanted bool
		begun  bool
	}
}

// workers is the number of workers of controllers that have several, as in the library.
const workers = 5
