package crd

import (
	"log/slog"

	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	kubeinformers "k8s.io/client-go/informers"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
	"github.com/kubeweir/kubeweir/origin/registry"
)

// Config configures a Server.
type Config struct {
	// Generic is the configuration shared by all servers of the chain; New changes its own copy.
	// Only the info and the security of its OpenAPI configs are used.
	Generic genericapiserver.Config
	// Informers are the informers of the built-in types.
	Informers kubeinformers.SharedInformerFactory
	// Registry determines where definitions and custom resources are kept, Prefix ("/registry") begins
	// their keys.
	Registry registry.Options
	Prefix   string
	// Delegate serves all requests that are not for custom resources.
	Delegate genericapiserver.DelegationTarget
	// ServiceResolver and AuthResolverWrapper are used to call conversion webhooks.
	ServiceResolver     webhook.ServiceResolver
	AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
	// Logger, default: slog.Default().
	Logger *slog.Logger
}

func group(cfg Config) schemas.Group {
	return schemas.Group{Definitions: generatedopenapi.GetOpenAPIDefinitions, Scheme: apiextensionsserver.Scheme, Config: &cfg.Generic}
}
