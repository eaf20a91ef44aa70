// Package crd serves CustomResourceDefinitions and the resources they define: the
// library's own server (k8s.io/apiextensions-apiserver) on a storage.Engine.
//
// The server differs from the one inside kube-apiserver in when it does its work. Sync reads the
// definitions before the post-start hooks run, because the hooks would look for them only every
// 100 ms. No OpenAPI document is built before a client requests one (openapi.go), because
// kube-apiserver's controllers build them at every change of a definition, read or not.
//
// Keys and values are kube-apiserver's (pkg/controlplane/apiserver,
// CreateAPIExtensionsConfig): definitions as JSON of v1beta1, custom resources as
// JSON of their storage version under /registry/<group>/<plural>/.
package crd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	clientinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/common"
)

// Server serves apiextensions.k8s.io and all custom resources.
type Server struct {
	// Generic is the server; its post-start hooks run the controllers. Destroy waits
	// for the informers that Sync began, after their context has ended.
	Generic *genericapiserver.GenericAPIServer
	// CRDs are the definitions. They are not read before Sync.
	CRDs crdinformers.CustomResourceDefinitionInformer

	informers clientinformers.SharedInformerFactory
}

// New builds a server. Nothing runs before Sync and the post-start hooks of Generic.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	config := genericConfig(cfg)
	library := apiextensionsserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config, SharedInformerFactory: cfg.Informers},
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: instancesGetter(cfg),
			MasterCount:          1, // establishing does not wait for other servers
			ServiceResolver:      cfg.ServiceResolver,
			AuthResolverWrapper:  cfg.AuthResolverWrapper,
		},
	}
	built, err := library.Complete().New(cfg.Delegate)
	if err != nil {
		return nil, fmt.Errorf("origin/crd: %w", err)
	}
	*config.OpenAPIV3Config = common.OpenAPIV3Config{}
	s := &Server{
		Generic:   built.GenericAPIServer,
		CRDs:      built.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		informers: built.Informers,
	}
	s.Generic.RegisterDestroyFunc(s.informers.Shutdown)
	docs := &documents{
		crds:      s.CRDs.Lister(),
		container: s.Generic.Handler.GoRestfulContainer,
		group:     group(cfg),
		logger:    cfg.Logger,
	}
	docs.install(s.Generic.Handler.NonGoRestfulMux)
	return s, nil
}

// genericConfig is cfg.Generic as CreateAPIExtensionsConfig changes it.
func genericConfig(cfg Config) genericapiserver.Config {
	config := cfg.Generic
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	config.RESTOptionsGetter = definitionsGetter(cfg)
	config.MergedResourceConfig = apiextensionsserver.DefaultAPIResourceConfigSource()
	// The outermost server's chain of filters is the one that requests pass.
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }

	// The types of one group, where the schema of cfg.Generic would be of all. It is
	// dropped when the group is installed.
	config.SkipOpenAPIInstallation = true
	config.OpenAPIConfig = nil
	config.OpenAPIV3Config = group(cfg).V3()
	return config
}

// Sync reads the definitions and returns when they are known. It is called once,
// when Generic's LoopbackClientConfig can be used and before the post-start hooks
// run: these then find the definitions at once, instead of looking again 100 ms
// later. ctx ends what it begins, too.
func (s *Server) Sync(ctx context.Context) error {
	s.informers.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", s.CRDs.Informer().HasSyncedChecker()) {
		return fmt.Errorf("origin/crd: reading the definitions: %w", context.Cause(ctx))
	}
	return nil
}
