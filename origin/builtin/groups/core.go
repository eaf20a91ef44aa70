package groups

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/kubernetes/pkg/cluster/ports"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstore "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccountstore "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
	kubeschedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// A coreProvider makes the storages of the core group as corerest's own provider
// does; that one opens an etcd client by itself for the node ports, this one keeps
// them where everything else is.
type coreProvider struct {
	cfg        Config
	allocators *allocators
}

func (p *coreProvider) GroupName() string { return "" }

func (p *coreProvider) NewRESTStorage(resources serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	// The part of the group that any control plane has: events, namespaces, secrets,
	// config maps, quotas, service accounts.
	generic := &corerest.GenericConfig{
		StorageFactory:              p.cfg.Storage,
		EventTTL:                    p.cfg.EventTTL,
		LoopbackClientConfig:        p.cfg.Loopback,
		ServiceAccountIssuer:        p.cfg.Tokens,
		ServiceAccountMaxExpiration: p.cfg.TokenExpiration.Max,
		ExtendExpiration:            !p.cfg.TokenExpiration.NotExtended,
		MaxExtendedExpiration:       maxExtendedExpiration,
		APIAudiences:                p.cfg.Audiences,
		Informers:                   p.cfg.Informers,
	}
	info, err := generic.NewRESTStorage(resources, opts)
	if err != nil {
		return info, err
	}
	storages := info.VersionedResourcesStorageMap["v1"]
	nodes, pods, err := p.addWorkloads(storages, opts)
	if err != nil {
		return info, err
	}
	if err := p.addServices(storages, opts, pods); err != nil {
		return info, err
	}
	if err := addVolumesAndLimits(storages, opts); err != nil {
		return info, err
	}
	if err := p.replaceServiceAccounts(storages, opts, nodes, pods); err != nil {
		return info, err
	}
	storages["componentstatuses"] = componentstatus.NewStorage(componentServers)
	return info, nil
}

func (p *coreProvider) addWorkloads(storages map[string]rest.Storage, opts generic.RESTOptionsGetter) (*nodestore.NodeStorage, *podstore.PodStorage, error) {
	nodes, err := nodestore.NewStorage(opts, p.kubelet(), p.cfg.ProxyTransport)
	if err != nil {
		return nil, nil, fmt.Errorf("nodes: %w", err)
	}
	budgets, err := policyclient.NewForConfig(p.cfg.Loopback)
	if err != nil {
		return nil, nil, fmt.Errorf("client of pods/eviction: %w", err)
	}
	pods, err := podstore.NewStorage(opts, nodes.KubeletConnectionInfo, p.cfg.ProxyTransport, budgets, p.cfg.Authorizer)
	if err != nil {
		return nil, nil, fmt.Errorf("pods: %w", err)
	}
	templates, err := podtemplatestore.NewREST(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("podtemplates: %w", err)
	}
	controllers, err := controllerstore.NewStorage(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("replicationcontrollers: %w", err)
	}
	for name, storage := range map[string]rest.Storage{
		"nodes":                         nodes.Node,
		"nodes/proxy":                   nodes.Proxy,
		"nodes/status":                  nodes.Status,
		"pods":                          pods.Pod,
		"pods/attach":                   pods.Attach,
		"pods/binding":                  pods.Binding,
		"pods/ephemeralcontainers":      pods.EphemeralContainers,
		"pods/eviction":                 pods.Eviction,
		"pods/exec":                     pods.Exec,
		"pods/log":                      pods.Log,
		"pods/portforward":              pods.PortForward,
		"pods/proxy":                    pods.Proxy,
		"pods/resize":                   pods.Resize,
		"pods/status":                   pods.Status,
		"bindings":                      pods.LegacyBinding,
		"podtemplates":                  templates,
		"replicationcontrollers":        controllers.Controller,
		"replicationcontrollers/scale":  controllers.Scale,
		"replicationcontrollers/status": controllers.Status,
	} {
		storages[name] = storage
	}
	return nodes, &pods, nil
}

func (p *coreProvider) addServices(storages map[string]rest.Storage, opts generic.RESTOptionsGetter, pods *podstore.PodStorage) error {
	endpoints, err := endpointsstore.NewREST(opts)
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	services, status, proxy, err := servicestore.NewREST(opts,
		p.allocators.family(), p.allocators.clusterIPs(), p.allocators.nodePorts,
		p.cfg.EndpointSlices, pods.Pod, p.cfg.ProxyTransport)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	p.allocators.awaitedBy(services.Store)
	storages["endpoints"] = endpoints
	storages["services"] = services
	storages["services/proxy"] = proxy
	storages["services/status"] = status
	return nil
}

func addVolumesAndLimits(storages map[string]rest.Storage, opts generic.RESTOptionsGetter) error {
	limits, err := limitrangestore.NewREST(opts)
	if err != nil {
		return fmt.Errorf("limitranges: %w", err)
	}
	volumes, volumeStatus, err := pvstore.NewREST(opts)
	if err != nil {
		return fmt.Errorf("persistentvolumes: %w", err)
	}
	claims, claimStatus, err := pvcstore.NewREST(opts)
	if err != nil {
		return fmt.Errorf("persistentvolumeclaims: %w", err)
	}
	storages["limitranges"] = limits
	storages["persistentvolumes"] = volumes
	storages["persistentvolumes/status"] = volumeStatus
	storages["persistentvolumeclaims"] = claims
	storages["persistentvolumeclaims/status"] = claimStatus
	return nil
}

// replaceServiceAccounts replaces the storage of service accounts by one that can bind tokens to
// pods, secrets and nodes.
func (p *coreProvider) replaceServiceAccounts(storages map[string]rest.Storage, opts generic.RESTOptionsGetter, nodes *nodestore.NodeStorage, pods *podstore.PodStorage) error {
	if p.cfg.Tokens == nil {
		return nil
	}
	secrets, ok := storages["secrets"].(rest.Getter)
	if !ok {
		return fmt.Errorf("secrets cannot be read: %T", storages["secrets"])
	}
	webhooks, err := admissionclient.NewForConfig(p.cfg.Loopback)
	if err != nil {
		return fmt.Errorf("client of serviceaccounts/token: %w", err)
	}
	accounts, err := serviceaccountstore.NewREST(opts, p.cfg.Tokens, p.cfg.Audiences, p.cfg.Authorizer, p.cfg.TokenExpiration.Max,
		pods.Pod.Store, secrets, nodes.Node.Store,
		webhooks.ValidatingWebhookConfigurations(), webhooks.MutatingWebhookConfigurations(), !p.cfg.TokenExpiration.NotExtended, maxExtendedExpiration)
	if err != nil {
		return fmt.Errorf("serviceaccounts: %w", err)
	}
	storages["serviceaccounts"].Destroy()
	storages["serviceaccounts"] = accounts
	if token := storages["serviceaccounts/token"]; token != nil {
		token.Destroy()
	}
	if accounts.Token != nil {
		storages["serviceaccounts/token"] = accounts.Token
	}
	return nil
}

// maxExtendedExpiration is kube-apiserver's.
const maxExtendedExpiration = serviceaccount.ExpirationExtensionSeconds * time.Second

func (p *coreProvider) kubelet() kubeletclient.KubeletClientConfig {
	addresses := p.cfg.KubeletAddresses
	if len(addresses) == 0 {
		addresses = []string{
			string(corev1.NodeHostName),
			string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP),
			string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
		}
	}
	return kubeletclient.KubeletClientConfig{
		Port:                  ports.KubeletPort,
		ReadOnlyPort:          ports.KubeletReadOnlyPort,
		PreferredAddressTypes: addresses,
		HTTPTimeout:           5 * time.Second,
		TLSClientConfig: kubeletclient.KubeletTLSConfig{
			CertFile: p.cfg.KubeletCertFile, KeyFile: p.cfg.KubeletKeyFile, CAFile: p.cfg.KubeletCAFile,
		},
	}
}

// componentServers returns the servers whose health kube-apiserver reports as componentstatuses:
// the scheduler and the controller manager at their default ports, and the store. The store runs in
// this process, so it is healthy if this code runs.
func componentServers() map[string]componentstatus.Server {
	https := func(port int) componentstatus.Server {
		return &componentstatus.HttpServer{
			EnableHTTPS: true, TLSConfig: &tls.Config{InsecureSkipVerify: true},
			Addr: net.IPv4(127, 0, 0, 1).String(), Port: port, Path: "/healthz",
		}
	}
	return map[string]componentstatus.Server{
		"controller-manager": https(ports.KubeControllerManagerPort),
		"scheduler":          https(kubeschedulerconfig.DefaultKubeSchedulerPort),
		"etcd-0":             storeServer{},
	}
}

type storeServer struct{}

func (storeServer) DoServerCheck() (probe.Result, string, error) { return probe.Success, "ok", nil }
