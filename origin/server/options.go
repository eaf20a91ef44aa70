package server

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/builtin/encryption"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// Options configure a Server. The zero value of a field selects the default in its comment; Engine
// and Identity.ServiceAccountKey have none.
type Options struct {
	// Engine holds the objects. The server does not close it.
	Engine storage.Engine
	// Identity configures authentication.
	Identity Identity
	// AdvertiseAddress is the address and port at which clients reach the server:
	// discovery and the endpoint of the service default/kubernetes name it.
	// Default: 127.0.0.1:6443.
	AdvertiseAddress netip.AddrPort
	// NoEndpoints leaves the endpoints of the service default/kubernetes to others.
	NoEndpoints bool
	// SharedStore: other servers may use the same store.
	SharedStore bool
	// ServiceCIDRs are the ranges of cluster IPs: one, or one of IPv4 and one of IPv6. The first
	// address of the first one belongs to the Service default/kubernetes. Default: 10.0.0.0/24, as in
	// kube-apiserver.
	ServiceCIDRs []netip.Prefix
	// Resources are the groups, versions and resources to serve (groups.Resources). Default: those that
	// kube-apiserver serves by default.
	Resources *serverstorage.ResourceConfig
	// NodePorts is the range of node ports. Default: 30000-32767.
	NodePorts PortRange
	// StoragePrefix begins every key. Default: "/registry", kube-apiserver's.
	StoragePrefix string
	// Encryption encrypts objects in the Engine. The server does not close it. Default: none.
	Encryption *encryption.Encryption
	// EventTTL is how long events are kept. Default: 1 h.
	EventTTL time.Duration
	// Requests limits the requests that are served at a time. Default: as kube-apiserver.
	Requests *RequestLimits
	// CountObjects returns the number of objects of a resource and their size, for the estimate of
	// what a list costs. Default: every list costs as much as another request.
	CountObjects func(schema.GroupResource) (objects, bytes int64, known bool)
	// EnableAdmission and DisableAdmission name admission plugins that are on, or off,
	// against the default.
	EnableAdmission, DisableAdmission []string
	// Kubelet configures requests to kubelets: log, exec, attach, port-forward and the proxy of
	// nodes.
	Kubelet KubeletClient
	// ProxyClientCert and ProxyClientKey, in PEM, authenticate this server to aggregated API
	// servers. Without them it sends no certificate.
	ProxyClientCert, ProxyClientKey []byte
	// StoreHealth is the check "etcd". Default: the Engine responds.
	StoreHealth func() error
	// CacheHealth is the check "cache" of /readyz, which kube-apiserver does not have. Default: no check.
	CacheHealth func() error
	// Flags are the flags in force, for /flagz, which shows them to those who may read the path.
	// Default: there is no /flagz.
	Flags map[string]string
	// Program is the name and the version of the program, for snapshots.
	Program string
	// Logger, default: slog.Default().
	Logger *slog.Logger
	// Registerer takes the server's own metrics; without one they are not collected.
	// Those of kube-apiserver are answered at /metrics of the Handler.
	Registerer prometheus.Registerer
}

// RequestLimits are the settings of package config.
type RequestLimits struct {
	// Enabled queues requests by FlowSchemas and PriorityLevelConfigurations, which share as many seats
	// as both numbers together. Otherwise MaxRequestsInFlight bounds the requests that only read, and
	// MaxMutatingRequestsInFlight the others; 0 is no bound.
	Enabled                                          bool
	MaxRequestsInFlight, MaxMutatingRequestsInFlight int
}

// PortRange is a range of ports: Size ones from Base on.
type PortRange struct{ Base, Size int }

// Identity configures authentication. A method without its material is off.
type Identity struct {
	// ClientCA, in PEM, signs client certificates in req.TLS, which name the user (CN) and the
	// groups (O).
	ClientCA []byte
	// PublishedClientCA is what aggregated API servers learn instead of ClientCA, if it is not empty.
	PublishedClientCA []byte
	// RequestHeader describes front proxies, whose certificates may name the user in headers. It is
	// published for aggregated API servers, to which this server is a front proxy.
	RequestHeader access.RequestHeader
	// TokenFile is the path of a CSV file of tokens (token,user,uid,"group1,group2").
	TokenFile string
	// BootstrapTokens accepts the tokens of Secrets of type bootstrap.kubernetes.io/token.
	BootstrapTokens bool
	// UncachedTokens checks a token whenever it is presented, for callers that cache the results.
	UncachedTokens bool
	// Authentication are further authenticators.
	Authentication access.Authentication
	// DisableAnonymous answers 401 to requests without credentials, instead of
	// serving them as system:anonymous.
	DisableAnonymous bool
	// AnonymousIsSet rejects a file of Authentication that configures anonymous requests.
	AnonymousIsSet bool
	// ServiceAccountKey signs service-account tokens: *rsa.PrivateKey or *ecdsa.PrivateKey.
	ServiceAccountKey any
	// ServiceAccountPublicKeys verify them besides the signing key's own.
	ServiceAccountPublicKeys []any
	// Issuer of service-account tokens. Default: https://kubernetes.default.svc.cluster.local.
	Issuer string
	// AcceptedIssuers are further issuers whose tokens are accepted.
	AcceptedIssuers []string
	// JWKSURI is the URL of the public keys in the issuer's discovery document. Default: the address
	// of this server.
	JWKSURI string
	// MaxTokenExpiration limits the lifetime of service account tokens. Default: no limit.
	MaxTokenExpiration time.Duration
	// NoExtendedTokens does not extend the lifetime of the tokens of pods to a year.
	NoExtendedTokens bool
	// Audiences of the server. Default: all issuers.
	Audiences []string
	// AlwaysAllow lets every authenticated client do everything, instead of what RBAC allows.
	AlwaysAllow bool
	// AuthorizeNodes puts the Node authorizer before RBAC.
	AuthorizeNodes bool
	// Authorization, if it has modes or a file, replaces AlwaysAllow and AuthorizeNodes.
	Authorization access.Authorization
}

// KubeletClient configures requests to kubelets by paths of PEM files, which are read again when
// they change.
type KubeletClient struct {
	// CertFile and KeyFile are the client certificate shown to kubelets.
	CertFile, KeyFile string
	// CAFile verifies their serving certificates; without one they are not verified,
	// as kube-apiserver does it without --kubelet-certificate-authority.
	CAFile string
	// AddressTypes are the types of node addresses by preference. Default: kube-apiserver's.
	AddressTypes []string
}
