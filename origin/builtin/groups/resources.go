package groups

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	cliflag "k8s.io/component-base/cli/flag"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// needed are the versions without which this server does not start or creates no pods.
var needed = []string{
	"v1", "admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", "coordination.k8s.io/v1",
	"discovery.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1",
	"rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1",
}

// Resources returns the groups, versions and resources to serve: the default ones with the changes of
// runtimeConfig, whose elements are values of --runtime-config.
func Resources(runtimeConfig []string) (*serverstorage.ResourceConfig, error) {
	out := DefaultResources()
	if len(runtimeConfig) == 0 {
		return out, nil
	}
	for _, gv := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		if !out.GroupVersionConfigs[gv] {
			out.DisableVersions(gv) // known, so that api/all and others find it
		}
	}
	changes := cliflag.ConfigurationMap{}
	if err := changes.Set(strings.Join(runtimeConfig, ",")); err != nil {
		return nil, err
	}
	for _, version := range needed {
		if changes[version] == "false" {
			return nil, fmt.Errorf("%s=false is not supported, because the server itself needs it", version)
		}
	}
	delete(changes, "v1") // the library takes only keys with a group
	options := &serveroptions.APIEnablementOptions{RuntimeConfig: changes}
	if errs := options.Validate(legacyscheme.Scheme, apiextensionsserver.Scheme, aggregatorscheme.Scheme); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out, err := resourceconfig.MergeAPIResourceConfigs(out, changes, legacyscheme.Scheme)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(needed, func(version string) bool {
		gv, err := schema.ParseGroupVersion(version)
		return err == nil && legacyscheme.Scheme.IsVersionRegistered(gv) && !out.GroupVersionConfigs[gv]
	}); i >= 0 {
		return nil, fmt.Errorf("%s cannot be switched off, because the server itself needs it", needed[i])
	}
	return out, nil
}
