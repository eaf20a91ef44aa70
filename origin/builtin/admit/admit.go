// Package admit is kube-apiserver's admission chain: the plugins that are on by
// default in v1.37, in kube-apiserver's order, with its switches.
//
// It differs from kube-apiserver's in what it keeps in memory and does at start,
// not in what it decides. Plugins that want to look up pods and nodes read them
// from the server when they do (lean.go), instead of from informers that hold a
// copy of each. Admission policies cost nothing as long as there are no bindings
// of them, webhooks none as long as none are configured (skip.go, policies.go).
package admit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	apiserverapiv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverapiv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	controlplaneadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/kubeweir/kubeweir/origin/internal/extension"
)

// Config configures admission. All fields are required unless their comments say otherwise.
type Config struct {
	// Loopback, Client and Dynamic are privileged clients of this very server. They are
	// not used before it serves.
	Loopback *rest.Config
	Client   kubernetes.Interface
	Dynamic  dynamic.Interface
	// Informers are started by the caller, after New.
	Informers  informers.SharedInformerFactory
	Authorizer authorizer.Authorizer
	// ServiceResolver and ProxyTransport reach webhooks.
	ServiceResolver webhook.ServiceResolver
	ProxyTransport  *http.Transport
	// Drained is closed when no request is served any more. Everything that New
	// starts ends then.
	Drained <-chan struct{}
	// APIResources are the resources that are served.
	APIResources serverstorage.APIResourceConfigSource
	// Enable and Disable name plugins, as --enable-admission-plugins and
	// --disable-admission-plugins do. Optional.
	Enable, Disable []string
	// ConfigFile is the value of --admission-control-config-file. Optional.
	ConfigFile string
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// restMapperReset is how often kinds are looked up anew for parameters of policies
// (genericoptions.AdmissionOptions).
const restMapperReset = 30 * time.Second

// New builds the chain and registers the informers it needs with cfg.Informers.
// Requests wait for those to have synced, for 10 s at most.
func New(ctx context.Context, cfg Config) (admission.Interface, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	plugins := admission.NewPlugins()
	genericapiserver.RegisterAllAdmissionPlugins(plugins)
	kubeoptions.RegisterAllAdmissionPlugins(plugins)
	names, err := enabled(plugins.Registered(), cfg.Enable, cfg.Disable)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(apiserverapi.AddToScheme(scheme), apiserverapiv1alpha1.AddToScheme(scheme), apiserverapiv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	plugged, err := admission.ReadAdmissionConfiguration(names, cfg.ConfigFile, scheme)
	if err != nil {
		return nil, fmt.Errorf("admission configuration: %w", err)
	}
	initializers, err := initializersFor(cfg)
	if err != nil {
		return nil, err
	}
	chain, err := plugins.NewFromPlugins(names, plugged, initializers, skipper(cfg.Informers))
	if err != nil {
		return nil, fmt.Errorf("admission plugins: %w", err)
	}
	cfg.Logger.DebugContext(ctx, "admission", "plugins", strings.Join(names, ","))
	return chain, nil
}

// enabled returns the names of the plugins to run, in order.
func enabled(registered, enable, disable []string) ([]string, error) {
	known := sets.New(registered...)
	for flag, names := range map[string][]string{"enable": enable, "disable": disable} {
		for _, name := range names {
			if !known.Has(name) {
				return nil, fmt.Errorf("admission: there is no plugin %q to %s; there are %s", name, flag, strings.Join(registered, ", "))
			}
		}
	}
	if both := sets.New(enable...).Intersection(sets.New(disable...)); len(both) > 0 {
		return nil, fmt.Errorf("admission: %v are both enabled and disabled", sets.List(both))
	}
	off := kubeoptions.DefaultOffAdmissionPlugins().Insert(disable...).Delete(enable...)
	return slices.DeleteFunc(slices.Clone(kubeoptions.AllOrderedPlugins), off.Has), nil
}

// Except returns all plugins but the given ones.
func Except(names []string) []string {
	return slices.DeleteFunc(slices.Clone(kubeoptions.AllOrderedPlugins), func(name string) bool { return slices.Contains(names, name) })
}

// initializersFor does what genericoptions.AdmissionOptions and
// pkg/controlplane/apiserver do.
func initializersFor(cfg Config) (admission.PluginInitializers, error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cfg.Client.Discovery()))
	go wait.Until(mapper.Reset, restMapperReset, cfg.Drained)

	lean := leanFactory{cfg.Informers, cfg.Client}
	control := controlplaneadmission.Config{
		LoopbackClientConfig: cfg.Loopback,
		ExternalInformers:    lean,
		APIResourceConfig:    cfg.APIResources,
	}
	// Webhooks, resource quotas and what is exempt from webhooks and policies.
	kube, err := control.New(cfg.ProxyTransport, nil, cfg.ServiceResolver, nil)
	if err != nil {
		return nil, fmt.Errorf("admission initializers: %w", err)
	}
	generic := initializer.New(
		newPolicyClient(cfg.Client, cfg.Informers, cfg.Drained), cfg.Dynamic, lean, cfg.Authorizer,
		utilfeature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), cfg.Drained, mapper)
	// Around what the one before has set.
	bounded := webhookinit.NewPluginInitializer(extension.Webhooks(extension.AdmissionResponse), cfg.ServiceResolver)
	return append(append(admission.PluginInitializers{generic}, kube...), bounded), nil
}
