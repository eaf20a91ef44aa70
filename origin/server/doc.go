// Package server assembles the origin: an API server in this process with the
// behaviour of kube-apiserver v1.36, over a storage.Engine.
//
// The chain is kube-apiserver's (cmd/kube-apiserver/app, CreateServerChain):
// one handler chain (filters.go), then the aggregator, the built-in groups
// (origin/builtin/groups), custom resources, and 404. Each link is a
// genericapiserver.GenericAPIServer whose delegate is the next one; whatever a
// link has to run is a post-start hook of it, so that the outermost one knows all.
//
// # What the server calls of its parts
//
// origin/builtin/access: who asks and what they may do.
//
//	type Config struct {
//		ClientCA, RequestHeaderCA []byte     // PEM, may be empty
//		RequestHeaderAllowedNames []string
//		TokenFile                 string     // path, may be empty
//		Anonymous                 bool
//		Issuer                    string
//		Audiences                 []string
//		SigningKey                any        // *rsa.PrivateKey or *ecdsa.PrivateKey
//		PublicKeys                []any      // that tokens are verified with, the signing key's own among them
//		Client                    kubernetes.Interface            // privileged; not usable before Start
//		Informers                 informers.SharedInformerFactory // started by the server, in Start
//		Logger                    *slog.Logger
//	}
//	type Access struct {
//		Authenticator authenticator.Request
//		Audiences     authenticator.Audiences
//		RequestHeader *authenticatorfactory.RequestHeaderConfig // nil without a RequestHeaderCA
//		Authorizer    authorizer.Authorizer                     // system:masters first, then RBAC
//		RuleResolver  authorizer.RuleResolver
//		Tokens        serviceaccount.TokenGenerator             // nil without a SigningKey
//		PublicKeys    serviceaccount.PublicKeysGetter
//	}
//	func New(ctx context.Context, cfg Config) (*Access, error)
//
// origin/builtin/admit: the admission chain.
//
//	type Config struct {
//		Loopback        *rest.Config // of a privileged client in this process
//		Client          kubernetes.Interface
//		Dynamic         dynamic.Interface
//		Informers       informers.SharedInformerFactory
//		Authorizer      authorizer.Authorizer
//		ServiceResolver webhook.ServiceResolver
//		ProxyTransport  *http.Transport
//		Drained         <-chan struct{} // closed when no request is served any more
//		APIResources    serverstorage.APIResourceConfigSource
//		Logger          *slog.Logger
//	}
//	func New(ctx context.Context, cfg Config) (admission.Interface, error)
//
// origin/builtin/bootstrap: what has to exist. Run returns when everything was
// written that clients rely on at once (system namespaces, bootstrap roles,
// priority classes, flow schemas, extension-apiserver-authentication); what goes on
// afterwards ends with ctx, and wait waits for that.
//
//	type Config struct {
//		Client                    kubernetes.Interface
//		ClientCA, RequestHeaderCA []byte
//		RequestHeaderAllowedNames []string
//		Informers                 informers.SharedInformerFactory
//		AdvertiseAddress          netip.AddrPort // endpoint of the service default/kubernetes
//		ServiceIP                 netip.Addr     // its cluster IP
//		Logger                    *slog.Logger
//	}
//	func Run(ctx context.Context, cfg Config) (wait func(), err error)
//
// origin/crd and origin/aggregator. Generic is a shallow copy of the config of the
// built-in groups, as kube-apiserver does it, to be changed at will: its
// RESTOptionsGetter, MergedResourceConfig, Serializer and PostStartHooks must be
// (CreateAPIExtensionsConfig, CreateAggregatorConfig). SkipOpenAPIInstallation is
// true, OpenAPIConfig and OpenAPIV3Config have the title and the security schemes
// but no definitions: nothing builds a schema before it is asked for. groups.OpenAPIConfig and groups.OpenAPIV3Config (origin/builtin)
// build those of kube-apiserver; they take tens of milliseconds.
//
//	package crd
//	type Config struct {
//		Generic             genericapiserver.Config
//		Informers           informers.SharedInformerFactory
//		Registry            registry.Options // where definitions and custom resources are kept
//		Prefix              string // of all keys, "/registry"
//		Delegate            genericapiserver.DelegationTarget // 404
//		ServiceResolver     webhook.ServiceResolver
//		AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
//		Logger              *slog.Logger
//	}
//	type Server struct {
//		Generic *genericapiserver.GenericAPIServer
//		CRDs    apiextensionsinformers.CustomResourceDefinitionInformer // .../externalversions/apiextensions/v1
//	}
//	func New(cfg Config) (*Server, error)
//	func (*Server) Sync(ctx context.Context) error // reads the definitions; before the hooks run
//
//	package aggregator
//	type Config struct {
//		Generic                    genericapiserver.Config
//		Informers                  informers.SharedInformerFactory
//		Registry                   registry.Options
//		Prefix                     string
//		Delegate                   *genericapiserver.GenericAPIServer // the built-in groups; serves its own /openapi/v2 and /openapi/v3
//		CRDs                       apiextensionsinformers.CustomResourceDefinitionInformer
//		ServiceResolver            webhook.ServiceResolver
//		ProxyTransport             *http.Transport
//		ProxyClientCert, ProxyClientKey []byte // PEM, may be empty
//		Logger                     *slog.Logger
//	}
//	type Server struct {
//		Generic *genericapiserver.GenericAPIServer // the outermost: its Handler is the whole chain
//	}
//	func New(cfg Config) (*Server, error)
//	// Prepare installs what PrepareRun of the libraries would (OpenAPI, health); after it the handler serves.
//	func (*Server) Prepare() error
//	func (*Server) Sync(ctx context.Context) error // reads the APIServices; before the hooks run
package server
