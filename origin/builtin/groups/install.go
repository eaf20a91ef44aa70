package groups

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	"k8s.io/kubernetes/pkg/routes"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Install puts the built-in groups, their discovery, the OpenAPI documents and the
// issuer discovery of service-account tokens into a server that was made of generic
// (NewGenericConfig), and adds what keeps cluster IPs and node ports true to its
// post-start hooks.
func Install(s *genericapiserver.GenericAPIServer, generic *genericapiserver.Config, cfg Config, log *slog.Logger) error {
	allocators, err := newAllocators(cfg, log)
	if err != nil {
		return err
	}
	s.RegisterDestroyFunc(allocators.destroy)
	infos, err := groupInfos(s, generic.MergedResourceConfig, cfg, &coreProvider{cfg, allocators})
	if err != nil {
		return err
	}
	types, err := newTypeConverter(infos)
	if err != nil {
		return err
	}
	in := &installer{
		server:    s,
		admit:     generic.AdmissionControl,
		addresses: generic.DiscoveryAddresses,
		minWatch:  time.Duration(generic.MinRequestTimeout) * time.Second,
		maxBody:   generic.MaxRequestBodyBytes,
		types:     types,
	}
	for _, info := range infos {
		if err := in.install(info); err != nil {
			return fmt.Errorf("installing group %q: %w", info.PrioritizedVersions[0].Group, err)
		}
	}
	installIssuer(s, cfg, log)
	installOpenAPI(s, in.versions)
	return addHooks(s, cfg, allocators)
}

// addHooks adds the post-start hooks of the groups, and the health checks of those whose work the caller
// does, in kube-apiserver's order, which is that of the health checks.
func addHooks(s *genericapiserver.GenericAPIServer, cfg Config, allocators *allocators) error {
	checks := func(hooks ...string) (err error) {
		for _, hook := range hooks {
			if cfg.Check == nil {
				return nil
			}
			err = errors.Join(err, s.AddBootSequenceHealthChecks(cfg.Check(hook)))
		}
		return err
	}
	// Writes flow schemas and priority levels, and keeps them in place.
	name, hook, err := flowcontrolrest.RESTStorageProvider{InformerFactory: cfg.Informers}.PostStartHook()
	return errors.Join(err,
		checks("start-system-namespaces-controller", "start-cluster-authentication-info-controller", "storage-readiness", "start-legacy-token-tracking-controller"),
		allocators.addRepair(s),
		checks("rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes"),
		s.AddPostStartHook(name, func(ctx genericapiserver.PostStartHookContext) error {
			// The error of a hook ends the process; a server that was closed has failed in nothing.
			if err := hook(ctx); ctx.Err() == nil {
				return err
			}
			return nil
		}),
		checks("bootstrap-controller"),
		allocators.addRanges(s))
}

// An installer does what InstallAPIGroups of genericapiserver does, without building
// the schemas of all types first.
type installer struct {
	server    *genericapiserver.GenericAPIServer
	admit     admission.Interface
	addresses discovery.Addresses
	minWatch  time.Duration
	maxBody   int64
	types     managedfields.TypeConverter
	// versions returns the installed versions.
	versions []*genericapi.APIGroupVersion
}

func (in *installer) install(info *genericapiserver.APIGroupInfo) error {
	group := info.PrioritizedVersions[0].Group
	prefix, aggregator := genericapiserver.APIGroupPrefix, in.server.AggregatedDiscoveryGroupManager
	if group == "" {
		prefix, aggregator = genericapiserver.DefaultLegacyAPIPrefix, in.server.AggregatedLegacyDiscoveryGroupManager
	}
	apiGroup := metav1.APIGroup{Name: group}
	for _, gv := range info.PrioritizedVersions {
		if len(info.VersionedResourcesStorageMap[gv.Version]) == 0 {
			continue
		}
		resources, err := in.version(info, gv, prefix)
		if err != nil {
			return err
		}
		aggregator.AddGroupVersion(group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			Version:   gv.Version,
			Resources: resources,
		})
		apiGroup.Versions = append(apiGroup.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	// The first version of the group, served or not, as InstallAPIGroups has it.
	preferred := info.PrioritizedVersions[0]
	apiGroup.PreferredVersion = metav1.GroupVersionForDiscovery{GroupVersion: preferred.String(), Version: preferred.Version}
	in.server.RegisterDestroyFunc(func() { destroy(info) })
	in.discovery(apiGroup)
	return nil
}

// version registers the routes of one group and version.
func (in *installer) version(info *genericapiserver.APIGroupInfo, gv schema.GroupVersion, prefix string) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	scheme := info.Scheme
	v := &genericapi.APIGroupVersion{
		Root:                        prefix,
		GroupVersion:                gv,
		Storage:                     info.VersionedResourcesStorageMap[gv.Version],
		AllServedVersionsByResource: servedVersions(info, gv.Group),
		OptionsExternalVersion:      info.OptionsExternalVersion,
		MetaGroupVersion:            info.MetaGroupVersion,
		ParameterCodec:              info.ParameterCodec,
		Serializer:                  info.NegotiatedSerializer,
		Creater:                     scheme,
		Convertor:                   scheme,
		ConvertabilityChecker:       scheme,
		UnsafeConvertor:             runtime.UnsafeObjectConvertor(scheme),
		Defaulter:                   scheme,
		Typer:                       scheme,
		Namer:                       runtime.Namer(meta.NewAccessor()),
		TypeConverter:               in.types,
		EquivalentResourceRegistry:  in.server.EquivalentResourceRegistry,
		Admit:                       in.admit,
		Authorizer:                  in.server.Authorizer,
		MinRequestTimeout:           in.minWatch,
		MaxRequestBodyBytes:         in.maxBody,
	}
	container := in.server.Handler.GoRestfulContainer
	resources, _, err := v.InstallREST(container)
	if err != nil {
		return nil, err
	}
	in.versions = append(in.versions, v)
	services := container.RegisteredWebServices()
	forgetDescriptions(services[len(services)-1])
	return resources, nil
}

func servedVersions(info *genericapiserver.APIGroupInfo, group string) map[string][]string {
	all := map[string][]string{}
	for version, resources := range info.VersionedResourcesStorageMap {
		for resource := range resources {
			all[resource] = append(all[resource], schema.GroupVersion{Group: group, Version: version}.String())
		}
	}
	return all
}

// discovery answers /api for the core group, /apis/GROUP for another.
func (in *installer) discovery(group metav1.APIGroup) {
	container := in.server.Handler.GoRestfulContainer
	if group.Name != "" {
		in.server.DiscoveryGroupManager.AddGroup(group)
		container.Add(discovery.NewAPIGroupHandler(in.server.Serializer, group).WebService())
		return
	}
	root := discovery.NewLegacyRootAPIHandler(in.addresses, in.server.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
	legacy := in.server.AggregatedLegacyDiscoveryGroupManager
	container.Add(aggregated.WrapAggregatedDiscoveryToHandler(root, legacy, legacy).
		GenerateWebService(genericapiserver.DefaultLegacyAPIPrefix, metav1.APIVersions{}))
}

func destroy(info *genericapiserver.APIGroupInfo) {
	for _, resources := range info.VersionedResourcesStorageMap {
		for _, storage := range resources {
			storage.Destroy()
		}
	}
}

// installIssuer publishes how service-account tokens are verified. Issuers that are
// not https URLs cannot be published, as kube-apiserver has it too.
func installIssuer(s *genericapiserver.GenericAPIServer, cfg Config, log *slog.Logger) {
	if cfg.Tokens == nil {
		return
	}
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(cfg.Issuer, cfg.JWKSURI, s.ExternalAddress, cfg.PublicKeys)
	if err != nil {
		log.Warn("The discovery of the issuer of service-account tokens is off", "issuer", cfg.Issuer, "error", err)
		return
	}
	routes.NewOpenIDMetadataServer(metadata).Install(s.Handler.GoRestfulContainer)
}
