package aggregator

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/cache"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	library "k8s.io/kube-aggregator/pkg/apiserver"
	apiserviceinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	localstatus "k8s.io/kube-aggregator/pkg/controllers/status/local"
	"k8s.io/kubernetes/pkg/controlplane/controller/crdregistration"
)

// autoregistration is the hook that registers the groups of this server.
const autoregistration = "kube-apiserver-autoregistration"

// addHooks adds the post-start hooks of kube-apiserver, under the names of its health checks.
func (s *Server) addHooks() error {
	routed := make(chan struct{})
	if err := s.Generic.RegisterMuxAndDiscoveryCompleteSignal("APIServiceRegistrationControllerInitiated", routed); err != nil {
		return err
	}
	routing := library.NewAPIServiceRegistrationController(s.APIServices, s)
	local, err := localstatus.New(s.APIServices, s.clients.ApiregistrationV1(), s.metrics)
	if err != nil {
		return err
	}
	register := autoregister.NewAutoRegisterController(s.APIServices, s.clients.ApiregistrationV1())
	own := newOwnServices(s.registerOwn(register))
	if err := own.watch(s.APIServices); err != nil {
		return err
	}
	// Before that /apis does not list all groups.
	if err := s.Generic.RegisterMuxAndDiscoveryCompleteSignal("APIServicesRegistered", own.complete); err != nil {
		return err
	}
	custom := crdregistration.NewCRDRegistrationController(s.cfg.CRDs, register)

	// In kube-apiserver's order, which is that of the health checks.
	hooks := []struct {
		name string
		run  genericapiserver.PostStartHookFunc
	}{
		{"start-kube-aggregator-informers", func(ctx genericapiserver.PostStartHookContext) error {
			s.informers.Start(ctx.Done())
			return nil
		}},
		{"apiservice-status-local-available-controller", func(ctx genericapiserver.PostStartHookContext) error {
			go local.Run(workers, ctx.Done())
			return nil
		}},
		{"apiservice-status-remote-available-controller", func(ctx genericapiserver.PostStartHookContext) error {
			s.remote.start(ctx)
			return nil
		}},
		{"apiservice-registration-controller", func(ctx genericapiserver.PostStartHookContext) error {
			go routing.Run(ctx.Done(), routed)
			wait(ctx, routed)
			return nil
		}},
		{"apiservice-discovery-controller", func(ctx genericapiserver.PostStartHookContext) error {
			// It looks at the APIServices that have a route.
			if !wait(ctx, routed) {
				return nil
			}
			synced := make(chan struct{})
			go s.discovery.Run(ctx.Done(), synced)
			wait(ctx, synced)
			return nil
		}},
		{autoregistration, func(ctx genericapiserver.PostStartHookContext) error {
			// Before the groups of the definitions are registered, their APIServices would be
			// taken for leftovers and deleted. Sync has read the definitions.
			go custom.Run(workers, ctx.Done())
			go func() {
				custom.WaitForInitialSync()
				register.Run(workers, ctx.Done())
			}()
			return nil
		}},
		// One hook here for two there: apiservice-openapiv3-controller is in it.
		{"apiservice-openapi-controller", func(ctx genericapiserver.PostStartHookContext) error {
			s.documents.start(ctx)
			return nil
		}},
		{"apiservice-openapiv3-controller", func(genericapiserver.PostStartHookContext) error { return nil }},
	}
	for _, hook := range hooks {
		if err := s.Generic.AddPostStartHook(hook.name, hook.run); err != nil {
			return err
		}
		if hook.name != autoregistration {
			continue
		}
		if err := s.Generic.AddBootSequenceHealthChecks(healthz.NamedCheck("autoregister-completion", own.check)); err != nil {
			return err
		}
	}
	return nil
}

// wait returns whether done was closed before ctx ended.
func wait(ctx genericapiserver.PostStartHookContext, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// registerOwn registers an APIService for every group and version that the next servers serve
// themselves, and returns their names. It passes their priorities to the manager of aggregated
// discovery.
func (s *Server) registerOwn(register autoregister.AutoAPIServiceRegistration) []string {
	known := priorities()
	for gv, p := range known {
		s.Generic.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(metav1.GroupVersion(gv), int(p.group), int(p.version))
	}
	var names []string
	for _, path := range s.cfg.Delegate.ListedPaths() {
		gv, ok := groupVersionOf(path)
		if !ok {
			continue
		}
		p, ok := known[gv]
		if !ok {
			continue
		}
		service := apiServiceOf(gv, p)
		register.AddAPIServiceToSyncOnStart(service)
		names = append(names, service.Name)
	}
	return names
}

// groupVersionOf is the group and version that a path is the root of.
func groupVersionOf(path string) (schema.GroupVersion, bool) {
	if path == "/api/v1" {
		return schema.GroupVersion{Version: "v1"}, true
	}
	parts := strings.Split(path, "/") // "", "apis", group, version
	if len(parts) != 4 || parts[1] != "apis" {
		return schema.GroupVersion{}, false
	}
	return schema.GroupVersion{Group: parts[2], Version: parts[3]}, true
}

// apiServiceOf is the APIService of a group and version served here.
func apiServiceOf(gv schema.GroupVersion, p priority) *apiregistration.APIService {
	return &apiregistration.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistration.APIServiceSpec{
			Group:                gv.Group,
			Version:              gv.Version,
			GroupPriorityMinimum: p.group,
			VersionPriority:      p.version,
		},
	}
}

// ownServices are the APIServices of the groups that this process serves.
type ownServices struct {
	// complete is closed when each of them was seen to be available once.
	complete chan struct{}
	mu       sync.Mutex
	missing  map[string]bool
}

func newOwnServices(names []string) *ownServices {
	o := &ownServices{complete: make(chan struct{}), missing: make(map[string]bool, len(names))}
	for _, name := range names {
		o.missing[name] = true
	}
	if len(names) == 0 {
		close(o.complete)
	}
	return o
}

func (o *ownServices) watch(services apiserviceinformers.APIServiceInformer) error {
	_, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    o.see,
		UpdateFunc: func(_, obj any) { o.see(obj) },
	})
	return err
}

func (o *ownServices) see(obj any) {
	service, ok := obj.(*apiregistration.APIService)
	if !ok || !helper.IsAPIServiceConditionTrue(service, apiregistration.Available) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.missing[service.Name] {
		return
	}
	delete(o.missing, service.Name)
	if len(o.missing) == 0 {
		close(o.complete)
	}
}

// check fails until all are complete.
func (o *ownServices) check(*http.Request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.missing) > 0 {
		return fmt.Errorf("missing APIService: %v", slices.Sorted(maps.Keys(o.missing)))
	}
	return nil
}
