// Package access decides who asks and what they may do, as kube-apiserver does
// with --authorization-mode=RBAC: its authenticators in its order, members of
// system:masters first and RBAC then, with its words.
//
// RBAC objects are read from informers, so that a change is effective as soon as an informer has
// seen it, as in kube-apiserver. The objects that a service-account token is bound to (account,
// secret, pod, node) are read when the token is first seen and again ten seconds later. They are
// not kept in informers, because tokens are few, but pods and nodes are many.
//
// The Node authorizer runs only if Config.Nodes is set, because it keeps all nodes, pods, volumes
// and attachments in informers. Without it, kubelets need a binding to ClusterRole system:node.
package access

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	authenticationunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/features"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/auth/authenticator/token/bootstrap"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// tokenCacheTTL is how long an accepted token is cached (pkg/kubeapiserver/options:
// TokenSuccessCacheTTL). Rejected ones are not cached.
const tokenCacheTTL = 10 * time.Second

// Config configures authentication and authorization.
type Config struct {
	// ClientCA, in PEM, signs client certificates. Empty: they are not looked at.
	ClientCA []byte
	// PublishedClientCA, if it is not empty, is published instead.
	PublishedClientCA []byte
	// RequestHeader is how front proxies name the user. Without a CA, their headers mean nothing.
	RequestHeader RequestHeader
	// TokenFile is the path of a CSV file: token,user,uid,"group1,group2". It is read
	// once. Empty: none.
	TokenFile string
	// UncachedTokens checks a token whenever it is presented, for callers that cache the results.
	UncachedTokens bool
	// Anonymous serves requests without credentials as system:anonymous. AnonymousIsSet rejects a file of
	// Authentication that configures anonymous requests.
	Anonymous, AnonymousIsSet bool
	// Authentication are further authenticators.
	Authentication Authentication
	// BootstrapTokens accepts the tokens of secrets of type
	// bootstrap.kubernetes.io/token in kube-system.
	BootstrapTokens bool
	// Issuers of service-account tokens, the first of which signs. Audiences of the server, the
	// issuers if empty.
	Issuers   []string
	Audiences []string
	// SigningKey signs service-account tokens: *rsa.PrivateKey or *ecdsa.PrivateKey.
	// Nil: none are made.
	SigningKey any
	// PublicKeys verify them besides the signing key's own, which need not be among
	// them.
	PublicKeys []any
	// AlwaysAllow replaces RBAC by kube-apiserver's mode AlwaysAllow.
	AlwaysAllow bool
	// Nodes puts the Node authorizer before RBAC, as --authorization-mode=Node,RBAC does.
	Nodes bool
	// Authorization, if it has modes or a file, replaces AlwaysAllow and Nodes.
	Authorization Authorization
	// Client is privileged and must not authenticate by a service-account token. It
	// may be unusable until the server serves.
	Client kubernetes.Interface
	// Informers are those of the RBAC types, and with Nodes those of what nodes use; the caller
	// starts them.
	Informers informers.SharedInformerFactory
}

// RequestHeader describes front proxies, as the --requestheader-* flags of kube-apiserver do.
type RequestHeader struct {
	// CA, in PEM, signs their certificates.
	CA []byte
	// AllowedNames are the common names of their certificates; any if empty.
	AllowedNames []string
	// The headers that name the user. A list that is empty has no default.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// KubeadmRequestHeader returns a RequestHeader with the headers that kubeadm configures and aggregated API
// servers expect.
func KubeadmRequestHeader(ca []byte, names ...string) RequestHeader {
	return RequestHeader{
		CA: ca, AllowedNames: names,
		UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
}

// Access authenticates and authorizes requests. All of it is safe for concurrent use.
type Access struct {
	// Authenticator is never nil: without any method it accepts no credentials.
	Authenticator authenticator.Request
	// Local is Authenticator without the token webhook and the OpenID Connect issuers. It is nil if there is no
	// webhook.
	Local authenticator.Request
	// Audiences that a token has to be meant for, one of them.
	Audiences authenticator.Audiences
	// Anonymous says which requests without credentials are served as system:anonymous.
	Anonymous apiserver.AnonymousAuthConfig
	// RequestHeader is how front proxies name users; nil without a CA of theirs.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// Published is the configuration from which extension API servers learn how to authenticate
	// clients.
	Published clusterauthenticationtrust.ClusterAuthenticationInfo
	// Authorizer permits everything for system:masters, and otherwise applies RBAC, after the Node
	// authorizer if there is one.
	Authorizer   authorizer.Authorizer
	RuleResolver authorizer.RuleResolver
	// Tokens issues service account tokens; nil without a SigningKey.
	Tokens serviceaccount.TokenGenerator
	// PublicKeys verify service account tokens; nil if there are none.
	PublicKeys serviceaccount.PublicKeysGetter

	background sync.WaitGroup
}

// Wait waits, after the context of New has ended, until the files of the configuration are no longer
// followed.
func (a *Access) Wait() { a.background.Wait() }

// New builds an Access. The authorizer permits only system:masters until the informers have synced. With
// Nodes, a goroutine of Kubernetes waits for that, too, and never ends if they do not sync.
func New(ctx context.Context, cfg Config) (*Access, error) {
	a := &Access{Audiences: cfg.Audiences}
	if len(a.Audiences) == 0 {
		a.Audiences = cfg.Issuers
	}
	if err := a.addTokens(cfg); err != nil {
		return nil, err
	}
	if err := a.addAuthenticator(ctx, cfg); err != nil {
		return nil, err
	}
	if len(cfg.Authorization.Modes) > 0 || cfg.Authorization.ConfigFile != "" {
		var err error
		if a.Authorizer, a.RuleResolver, err = cfg.Authorization.build(ctx, cfg.Informers, a.Anonymous.Enabled); err != nil {
			return nil, err
		}
		return a, nil
	}
	if cfg.AlwaysAllow {
		always := authorizerfactory.NewAlwaysAllowAuthorizer()
		a.Authorizer, a.RuleResolver = always, always
		return a, nil
	}
	return a, a.addAuthorizer(cfg.Informers, cfg.Nodes)
}

// addTokens sets up the issuing and verifying of service account tokens.
func (a *Access) addTokens(cfg Config) error {
	keys := cfg.PublicKeys
	if cfg.SigningKey != nil {
		signer, ok := cfg.SigningKey.(crypto.Signer)
		if !ok {
			return fmt.Errorf("service-account signing key: a %T cannot sign", cfg.SigningKey)
		}
		if len(cfg.Issuers) == 0 {
			return errors.New("service-account signing key: an issuer is needed with it")
		}
		var err error
		if a.Tokens, err = serviceaccount.JWTTokenGenerator(cfg.Issuers[0], cfg.SigningKey); err != nil {
			return fmt.Errorf("service-account signing key: %w", err)
		}
		keys = withKey(keys, signer.Public())
	}
	if len(keys) == 0 {
		return nil
	}
	var err error
	if a.PublicKeys, err = serviceaccount.StaticPublicKeysGetter(keys); err != nil {
		return fmt.Errorf("service-account public keys: %w", err)
	}
	return nil
}

// withKey puts a key first among others, once.
func withKey(keys []any, key crypto.PublicKey) []any {
	out := []any{key}
	for _, k := range keys {
		if same, ok := k.(interface{ Equal(crypto.PublicKey) bool }); ok && same.Equal(key) {
			continue
		}
		out = append(out, k)
	}
	return out
}

func (a *Access) addAuthenticator(ctx context.Context, cfg Config) error {
	kube := kubeauthenticator.Config{
		Anonymous:                 apiserver.AnonymousAuthConfig{Enabled: cfg.Anonymous},
		BootstrapToken:            cfg.BootstrapTokens,
		TokenAuthFile:             cfg.TokenFile,
		APIAudiences:              a.Audiences,
		ServiceAccountIssuers:     cfg.Issuers,
		ServiceAccountLookup:      true,
		ServiceAccountTokenGetter: live{cfg.Client},
		SecretsWriter:             cfg.Client.CoreV1(),

		ServiceAccountPublicKeysGetter: a.PublicKeys,
	}
	if !cfg.UncachedTokens {
		kube.TokenSuccessCacheTTL = tokenCacheTTL
	}
	if cfg.BootstrapTokens {
		kube.BootstrapTokenAuthenticator = bootstrap.NewTokenAuthenticator(secrets{cfg.Client})
	}
	if len(cfg.ClientCA) > 0 {
		ca, err := dynamiccertificates.NewStaticCAContent("client-ca", cfg.ClientCA)
		if err != nil {
			return fmt.Errorf("client CA: %w", err)
		}
		kube.ClientCAContentProvider, a.Published.ClientCA = ca, ca
	}
	if len(cfg.PublishedClientCA) > 0 {
		ca, err := dynamiccertificates.NewStaticCAContent("published-client-ca", cfg.PublishedClientCA)
		if err != nil {
			return fmt.Errorf("client CA: %w", err)
		}
		a.Published.ClientCA = ca
	}
	if header := cfg.RequestHeader; len(header.CA) > 0 {
		ca, err := dynamiccertificates.NewStaticCAContent("request-header", header.CA)
		if err != nil {
			return fmt.Errorf("front proxies' CA: %w", err)
		}
		a.RequestHeader = &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice(header.UsernameHeaders),
			UIDHeaders:          headerrequest.StaticStringSlice(header.UIDHeaders),
			GroupHeaders:        headerrequest.StaticStringSlice(header.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice(header.ExtraHeaderPrefixes),
			AllowedClientNames:  headerrequest.StaticStringSlice(header.AllowedNames),
			CAContentProvider:   ca,
		}
		kube.RequestHeaderConfig = a.RequestHeader
		a.Published.RequestHeaderUsernameHeaders = a.RequestHeader.UsernameHeaders
		a.Published.RequestHeaderUIDHeaders = a.RequestHeader.UIDHeaders
		a.Published.RequestHeaderGroupHeaders = a.RequestHeader.GroupHeaders
		a.Published.RequestHeaderExtraHeaderPrefixes = a.RequestHeader.ExtraHeaderPrefixes
		a.Published.RequestHeaderAllowedNames = a.RequestHeader.AllowedClientNames
		a.Published.RequestHeaderCA = ca
	}
	if cfg.Authentication.Webhook.ConfigFile != "" {
		local := kube
		local.Anonymous = apiserver.AnonymousAuthConfig{} // for tokens only
		var err error
		if a.Local, _, _, _, err = local.New(ctx); err != nil {
			return fmt.Errorf("authenticators: %w", err)
		}
	}
	file, err := cfg.external(&kube)
	if err != nil {
		return err
	}
	a.Anonymous = kube.Anonymous
	built, update, _, _, err := kube.New(ctx)
	if err != nil {
		return cfg.authenticatorError(err)
	}
	if file != nil {
		f := &follower{options: file, update: update, anonymous: kube.AuthenticationConfig.DeepCopy().Anonymous, data: kube.AuthenticationConfigData}
		a.background.Go(func() { f.run(ctx) })
	}
	if built == nil {
		// The server would take nil to mean that no authentication is required.
		built = authenticationunion.New()
	}
	a.Authenticator = built
	return nil
}

// addAuthorizer does what pkg/kubeapiserver/authorizer does for the modes RBAC and Node,RBAC. The
// names of the authorizers are part of the message that clients get with a rejection.
func (a *Access) addAuthorizer(f informers.SharedInformerFactory, nodes bool) error {
	v1 := f.Rbac().V1()
	byRole := rbac.New(
		&rbac.RoleGetter{Lister: v1.Roles().Lister()},
		&rbac.RoleBindingLister{Lister: v1.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: v1.ClusterRoles().Lister()},
		&rbac.ClusterRoleBindingLister{Lister: v1.ClusterRoleBindings().Lister()},
	)
	all := []union.NamedAuthorizer{
		{AuthorizerName: "kubernetes.io/system-privileged-group", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
	}
	var rules []authorizer.RuleResolver
	if nodes {
		byNode := newNodeAuthorizer(f)
		all, rules = append(all, union.NamedAuthorizer{AuthorizerName: "node", Authorizer: byNode}), append(rules, byNode)
	}
	a.RuleResolver = union.NewRuleResolvers(append(rules, byRole)...)
	var err error
	a.Authorizer, err = union.New(append(all, union.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: byRole})...)
	return err
}

// newNodeAuthorizer returns an authorizer for kubelets. Its graph of what the pods of each node use
// is filled by the informers, as in pkg/kubeapiserver/authorizer.
func newNodeAuthorizer(f informers.SharedInformerFactory) *node.NodeAuthorizer {
	var requests certificatesinformers.PodCertificateRequestInformer
	if utilfeature.DefaultFeatureGate.Enabled(features.PodCertificateRequest) {
		requests = f.Certificates().V1().PodCertificateRequests()
	}
	node.RegisterMetrics()
	graph := node.NewGraph()
	node.AddGraphEventHandlers(graph,
		f.Core().V1().Nodes(), f.Core().V1().Pods(), f.Core().V1().PersistentVolumes(), f.Storage().V1().VolumeAttachments(),
		f.Resource().V1().ResourceSlices(), requests)
	return node.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
}
