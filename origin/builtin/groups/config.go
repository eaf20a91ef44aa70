package groups

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Version is the release of Kubernetes whose behaviour is served.
const Version = "1.37.2"

// ServicePort is the port of the service default/kubernetes.
const ServicePort = 443

// Config configures the groups. All fields are required unless their comments say otherwise.
type Config struct {
	// RESTOptions determines where objects are kept; see NewRESTOptions.
	RESTOptions generic.RESTOptionsGetter
	// Storage is the factory that RESTOptions were made from.
	Storage serverstorage.StorageFactory
	// Client, Informers and Loopback are privileged and call this server. They are not used before
	// the post-start hooks run.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Loopback  *rest.Config

	// Check returns the health check of a post-start hook of kube-apiserver whose work the caller does. If nil,
	// there are no such checks.
	Check func(hook string) healthz.HealthChecker

	Authenticator authenticator.Request
	Audiences     authenticator.Audiences
	Authorizer    authorizer.Authorizer
	RuleResolver  authorizer.RuleResolver

	// Tokens issues service-account tokens; nil: serviceaccounts/token is not served.
	Tokens serviceaccount.TokenGenerator
	// PublicKeys verify them; Issuer is named in them. Both are published under
	// /.well-known/openid-configuration and /openid/v1/jwks. JWKSURI, optional, is another URL of
	// the keys.
	PublicKeys      serviceaccount.PublicKeysGetter
	Issuer, JWKSURI string
	TokenExpiration TokenExpiration

	// EventTTL is how long events are kept.
	EventTTL time.Duration
	// ServiceCIDRs are the ranges of cluster IPs, one or one of each family. Services that do not
	// choose a family have that of the first.
	ServiceCIDRs []netip.Prefix
	// NodePorts is the range of node ports.
	NodePorts utilnet.PortRange
	// ProxyTransport connects to pods and services. EndpointSlices locates services.
	ProxyTransport *http.Transport
	EndpointSlices proxy.EndpointSliceGetter
	// KubeletCertFile, KubeletKeyFile and KubeletCAFile are paths, all optional.
	KubeletCertFile, KubeletKeyFile, KubeletCAFile string
	// KubeletAddresses are the types of node addresses by preference. Optional.
	KubeletAddresses []string
}

// TokenExpiration is how long service account tokens are valid: as long as they are requested for, by
// default, and those of pods a year.
type TokenExpiration struct {
	Max         time.Duration // 0: no limit
	NotExtended bool          // those of pods as all others
}

// capabilitiesOnce: k8s.io/kubernetes keeps what pods may ask for in a variable of
// the process, which may be set once.
var capabilitiesOnce = sync.OnceFunc(func() { capabilities.Setup(true, 0) })

// NewGenericConfig returns the configuration that the built-in groups, custom resources and the
// aggregator share: kube-apiserver's defaults, without a schema (see OpenAPIConfig) and without
// listeners. Discovery announces advertise to clients, and the service address to clients in
// serviceCIDR. resources are those of Resources.
func NewGenericConfig(advertise netip.AddrPort, serviceCIDR netip.Prefix, resources *serverstorage.ResourceConfig) *genericapiserver.Config {
	capabilitiesOnce()
	c := genericapiserver.NewConfig(legacyscheme.Codecs)
	c.EffectiveVersion = version()
	c.MergedResourceConfig = resources
	c.ExternalAddress = advertise.String()
	c.PublicAddress = net.IP(advertise.Addr().AsSlice())
	c.DiscoveryAddresses = discovery.DefaultAddresses{
		DefaultAddress: c.ExternalAddress,
		CIDRRules: []discovery.CIDRRule{{
			IPRange: ipNet(serviceCIDR),
			Address: net.JoinHostPort(FirstServiceIP(serviceCIDR).String(), strconv.Itoa(ServicePort)),
		}},
	}
	c.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	c.OpenAPIConfig, c.OpenAPIV3Config = openAPIFrame(), openAPIV3Frame()
	c.SkipOpenAPIInstallation = true
	// Profiles are taken on the admin listener, not through the API.
	c.EnableProfiling = false
	return c
}

// FirstServiceIP is the cluster IP of the service default/kubernetes: the first of
// the range.
func FirstServiceIP(cidr netip.Prefix) netip.Addr {
	return cidr.Masked().Addr().Next()
}

func ipNet(p netip.Prefix) net.IPNet {
	p = p.Masked()
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// An effectiveVersion is the library's, with the name of this server in what
// /version tells.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

func version() basecompatibility.EffectiveVersion {
	return effectiveVersion{basecompatibility.NewEffectiveVersionFromString(Version, "1.34", "1.34")}
}

func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = "v" + Version + "+kubeweir"
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	return info
}

// DefaultResources are the groups and versions that kube-apiserver serves by
// default: the stable ones (k8s.io/kubernetes/pkg/controlplane,
// DefaultAPIResourceConfigSource).
func DefaultResources() *serverstorage.ResourceConfig {
	c := serverstorage.NewResourceConfig()
	for _, gv := range []string{
		"v1",
		"admissionregistration.k8s.io/v1",
		"apps/v1",
		"authentication.k8s.io/v1",
		"authorization.k8s.io/v1",
		"autoscaling/v1",
		"autoscaling/v2",
		"batch/v1",
		"certificates.k8s.io/v1",
		"coordination.k8s.io/v1",
		"discovery.k8s.io/v1",
		"events.k8s.io/v1",
		"flowcontrol.apiserver.k8s.io/v1",
		"networking.k8s.io/v1",
		"node.k8s.io/v1",
		"policy/v1",
		"rbac.authorization.k8s.io/v1",
		"resource.k8s.io/v1",
		"scheduling.k8s.io/v1",
		"storage.k8s.io/v1",
		"storagemigration.k8s.io/v1",
	} {
		parsed, err := schema.ParseGroupVersion(gv)
		if err != nil {
			panic(fmt.Sprintf("groups: %v", err)) // a mistake in the list above
		}
		c.EnableVersions(parsed)
	}
	return c
}

// NewProxyTransport connects to pods, services and the hosts that they name, by address.
// Certificates, which name hosts, are therefore not verified.
func NewProxyTransport() *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	})
}
