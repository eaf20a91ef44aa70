package groups

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apiserverinternalrest "k8s.io/kubernetes/pkg/registry/apiserverinternal/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	lifecyclerest "k8s.io/kubernetes/pkg/registry/lifecycle/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	svmrest "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
)

// A provider makes the storages of one group.
type provider interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// providers are in kube-apiserver's order (pkg/controlplane, StorageProviders):
// of resources with one name in several groups, the first is meant by the short
// name.
func providers(cfg Config, core *coreProvider) []provider {
	return []provider{
		core,
		apiserverinternalrest.StorageProvider{},
		authenticationrest.RESTStorageProvider{Authenticator: cfg.Authenticator, APIAudiences: cfg.Audiences},
		authorizationrest.RESTStorageProvider{Authorizer: cfg.Authorizer, RuleResolver: cfg.RuleResolver},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		certificatesrest.RESTStorageProvider{Authorizer: cfg.Authorizer},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		lifecyclerest.RESTStorageProvider{},
		networkingrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: cfg.Authorizer},
		schedulingrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
		svmrest.RESTStorageProvider{},
		flowcontrolrest.RESTStorageProvider{InformerFactory: cfg.Informers},
		appsrest.StorageProvider{},
		admissionregistrationrest.RESTStorageProvider{Authorizer: cfg.Authorizer, DiscoveryClient: cfg.Client.Discovery()},
		eventsrest.RESTStorageProvider{TTL: cfg.EventTTL},
		resourcerest.RESTStorageProvider{NamespaceClient: cfg.Client.CoreV1().Namespaces(), Authorizer: cfg.Authorizer},
	}
}

// groupInfos creates the storages of all groups that have a resource to serve.
func groupInfos(s *genericapiserver.GenericAPIServer, resources *serverstorage.ResourceConfig, cfg Config, core *coreProvider) ([]*genericapiserver.APIGroupInfo, error) {
	// Kinds that a release no longer serves, or does not yet, are taken out.
	expiry, err := genericapiserver.NewResourceExpirationEvaluatorFromOptions(genericapiserver.ResourceExpirationEvaluatorOptions{
		CurrentVersion: s.EffectiveVersion.EmulationVersion(),
		Prerelease:     s.EffectiveVersion.BinaryVersion().PreRelease(),
	})
	if err != nil {
		return nil, fmt.Errorf("lifecycle of the built-in kinds: %w", err)
	}
	var infos []*genericapiserver.APIGroupInfo
	for _, p := range providers(cfg, core) {
		info, err := p.NewRESTStorage(resources, cfg.RESTOptions)
		if err != nil {
			return nil, fmt.Errorf("storages of group %q: %w", p.GroupName(), err)
		}
		err = expiry.RemoveUnavailableKinds(p.GroupName(), info.Scheme, info.VersionedResourcesStorageMap, resources)
		if err != nil {
			return nil, fmt.Errorf("lifecycle of group %q: %w", p.GroupName(), err)
		}
		if len(info.VersionedResourcesStorageMap) > 0 {
			infos = append(infos, &info)
		}
	}
	return infos, nil
}
