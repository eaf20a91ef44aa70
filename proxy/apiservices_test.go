package proxy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// builtinKinds prints the kinds that kube-apiserver itself has, of those in these tests.
type builtinKinds struct{}

func (builtinKinds) For(gvk schema.GroupVersionKind) (table.Printer, bool) {
	if slices.Contains([]string{"Pod", "APIService", "CustomResourceDefinition"}, gvk.Kind) {
		return table.NewDefaultPrinter(), true
	}
	return nil, false
}

var projects = schema.GroupVersionResource{Group: "project.example.com", Version: "v1", Resource: "projects"}

// aggregationBench is a gatewayBench before a source with APIServices and definitions,
// whose group project.example.com neither knows.
type aggregationBench struct {
	*gatewayBench
	resources *discovery.Resources
}

func newAggregationBench(t *testing.T, change func(*cachetest.Source), aggregatedGroups ...string) *aggregationBench {
	return newAggregationBenchWith(t, func(*Options) {}, change, aggregatedGroups...)
}

// newAggregationBenchWith has other options.
func newAggregationBenchWith(t *testing.T, options func(*Options), change func(*cachetest.Source), aggregatedGroups ...string) *aggregationBench {
	cluster := func(gvr schema.GroupVersionResource, kind string, custom bool) *source.Resource {
		res := &source.Resource{GroupVersionResource: gvr, Kind: kind, Custom: custom, Schema: object.SchemaFor(gvr)}
		if custom {
			res.Schema = object.CustomSchema(nil).ClusterScoped()
		}
		return res
	}
	source := cachetest.New(cachetest.PodResource(), cluster(discovery.APIServices, "APIService", false),
		cluster(discovery.CustomResourceDefinitions, "CustomResourceDefinition", false), cluster(projects, "Project", true))
	served := fakeDiscovery{}
	for gvr, kind := range map[schema.GroupVersionResource]string{
		cachetest.Pods: "Pod", discovery.APIServices: "APIService", discovery.CustomResourceDefinitions: "CustomResourceDefinition", projects: "Project",
	} {
		served[gvr] = discovery.ServerResource{
			GroupVersionResource: gvr, Kind: kind, Namespaced: kind == "Pod", Verbs: []string{"get", "list", "watch"},
		}
	}
	if change != nil {
		change(source)
	}
	b := &aggregationBench{}
	b.gatewayBench = newGatewayBench(t, func(o *Options) {
		manager, err := cache.NewManager(cache.Options{Source: source, Logger: o.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(manager.Close)
		o.Manager = manager
		b.resources = discovery.NewResources(served, builtinKinds{}, manager, o.Logger, discovery.Options{AggregatedGroups: aggregatedGroups})
		o.Resources = b.resources
		options(o)
	})
	b.source = source
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		b.resources.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	source.Create(projects, unstructuredNamed("p", nil))
	synctest.Wait()
	return b
}

func unstructuredNamed(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		u.Object["spec"] = spec
	}
	u.SetName(name)
	return u
}

// apiService is the APIService of projects; service "" is the upstream itself.
func apiService(service string) *unstructured.Unstructured {
	spec := map[string]any{"group": projects.Group, "version": projects.Version}
	if service != "" {
		spec["service"] = map[string]any{"namespace": "default", "name": service}
	}
	return unstructuredNamed("v1."+projects.Group, spec)
}

// projectDefinition returns the definition of projects.
func projectDefinition(kind string) *unstructured.Unstructured {
	names := map[string]any{"plural": "projects", "singular": "project", "kind": kind, "listKind": kind + "List"}
	crd := unstructuredNamed("projects."+projects.Group, map[string]any{
		"group": projects.Group, "scope": "Cluster", "names": names,
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true}},
	})
	crd.Object["status"] = map[string]any{
		"acceptedNames": names, "conditions": []any{map[string]any{"type": "Established", "status": "True"}},
	}
	return crd
}

// is fails the test unless projects are cached, or not.
func (b *aggregationBench) is(cached bool, when string) {
	b.t.Helper()
	synctest.Wait()
	for _, line := range []string{
		"GET /apis/project.example.com/v1/projects?resourceVersion=0", "GET /apis/project.example.com/v1/projects",
		"GET /apis/project.example.com/v1/projects/p?resourceVersion=0", "GET /apis/project.example.com/v1/projects/p",
		"GET /apis/project.example.com/v1/projects?watch=1&resourceVersion=0",
	} {
		n := b.upstream.count()
		resp := b.gateway.Serve(b.t.Context(), request(line))
		asClient := b.upstream.count() > n && b.upstream.forwarded[n].as.As == upstream.AsClient
		if resp.Stream != nil {
			resp.Stream.Stop()
		}
		resp.Done(0, nil)
		if asClient == cached {
			b.t.Errorf("%s: %s: forwarded as the client %v", when, line, asClient)
		}
	}
}

func TestAggregatedGroupsAreForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.is(false, "without an APIService")
		b.source.Create(discovery.APIServices, apiService("projects"))
		b.is(false, "served elsewhere")
		b.source.Update(discovery.APIServices, apiService(""))
		b.is(true, "served by the upstream")
		b.source.Update(discovery.APIServices, apiService("projects"))
		b.is(false, "served elsewhere again")
		if n := len(b.gateway.Manager.Status()); n != 2 {
			t.Errorf("%d collections, want those of definitions and APIServices", n)
		}
		b.source.Delete(discovery.APIServices, "v1."+projects.Group)
		b.is(false, "after its APIService")
	})
}

// TestWatchEndsWhenServedElsewhere: an open watch ends when another server takes over the group
// version.
func TestWatchEndsWhenServedElsewhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.source.Create(discovery.APIServices, apiService(""))
		synctest.Wait()
		resp := b.gateway.Serve(t.Context(), request("GET /apis/project.example.com/v1/projects?watch=1&resourceVersion=0"))
		if resp.Stream == nil {
			t.Fatalf("%d %s", resp.Status, resp.Body)
		}
		var w closeRecorder
		resp.Stream.Start(&w)
		b.source.Update(discovery.APIServices, apiService("projects"))
		synctest.Wait()
		if !w.closed {
			t.Error("the watch goes on")
		}
		resp.Done(0, nil)
	})
}

func TestConfiguredGroupsAreCached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil, "other.example.com", projects.Group)
		b.source.Create(discovery.APIServices, apiService("projects"))
		b.is(true, "served elsewhere, but named in the configuration")
		b.source.Update(discovery.APIServices, apiService("others"))
		synctest.Wait()
		if res, ok := b.resources.Lookup(projects); !ok || !res.Aggregated || res.Printer != nil {
			t.Errorf("%+v", res)
		}
		b.source.Update(discovery.APIServices, apiService(""))
		synctest.Wait()
		if res, ok := b.resources.Lookup(projects); !ok || res.Aggregated {
			t.Errorf("served by the upstream: %+v", res)
		}
	})
}

// TestUnreadableAPIServices: without the APIServices, only resources that certainly are the
// upstream's own are cached.
func TestUnreadableAPIServices(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rejected := apierrors.NewForbidden(discovery.APIServices.GroupResource(), "", nil)
		b := newAggregationBench(t, func(s *cachetest.Source) {
			s.Create(discovery.APIServices, apiService(""))
			s.Fail("watch", rejected) // nothing is read before the APIServices
		})
		b.is(false, "unread")
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0"); status != 200 || body == "upstream" {
			t.Errorf("pods: %d %s", status, body)
		}
		time.Sleep(20 * time.Second)
		b.is(true, "read at last")
	})
}

// TestDefinitionsOfAggregatedGroups: the definition of a resource in a group version that another
// server serves does not describe that group version.
func TestDefinitionsOfAggregatedGroups(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.source.Create(discovery.CustomResourceDefinitions, projectDefinition("Project"))
		b.is(true, "by a definition")
		b.source.Create(discovery.APIServices, apiService(""))
		b.is(true, "by a definition, with an APIService")
		b.source.Update(discovery.APIServices, apiService("projects"))
		b.is(false, "served elsewhere")
		b.source.Update(discovery.CustomResourceDefinitions, projectDefinition("Undertaking"))
		b.is(false, "served elsewhere, with another definition")
		b.source.Delete(discovery.APIServices, "v1."+projects.Group)
		b.is(true, "by the definition again")
	})
}

// TestAcceptedNamesAreOfTheDefinition: a definition with other accepted names is another
// definition, as it is to kube-apiserver.
func TestAcceptedNamesAreOfTheDefinition(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.source.Create(discovery.CustomResourceDefinitions, projectDefinition("Project"))
		synctest.Wait()
		changed := projectDefinition("Project")
		changed.Object["status"].(map[string]any)["acceptedNames"] = map[string]any{
			"plural": "projects", "singular": "project", "kind": "Undertaking", "listKind": "UndertakingList",
		}
		b.source.Update(discovery.CustomResourceDefinitions, changed)
		synctest.Wait()
		if res, ok := b.resources.Lookup(projects); !ok || res.Kind != "Undertaking" {
			t.Errorf("%+v", res)
		}
	})
}

// TestRequestsFromBeforeServedElsewhere: what a request learned before another server took
// the group version over makes no collection of that server's objects.
func TestRequestsFromBeforeServedElsewhere(t *testing.T) {
	for name, custom := range map[string]bool{"by discovery": false, "by a definition": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newAggregationBench(t, nil)
				if custom {
					b.source.Create(discovery.CustomResourceDefinitions, projectDefinition("Project"))
				}
				b.source.Create(discovery.APIServices, apiService(""))
				b.is(true, "served by the upstream")
				res, _ := b.resources.Lookup(projects)
				b.source.Update(discovery.APIServices, apiService("projects"))
				synctest.Wait()
				if _, err := b.gateway.Manager.Collection(t.Context(), res, api.JSON); !errors.Is(err, source.ErrRedefined) {
					t.Errorf("served elsewhere: %v", err)
				}
				b.source.Update(discovery.APIServices, apiService(""))
				b.is(true, "served by the upstream again")
				if now, _ := b.resources.Lookup(projects); now == res {
					t.Error("the same resource again")
				}
			})
		})
	}
}

// TestSharedResponseOfAnotherServer: an answer to the gateway itself, asked for while the
// upstream served the group version, is nobody else's once another server may have
// given it.
func TestSharedResponseOfAnotherServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.source.Create(discovery.APIServices, apiService(""))
		b.is(true, "served by the upstream")
		n, late := b.upstream.count(), make(chan struct{})
		b.upstream.response = func(*api.Request) *api.Response {
			<-late
			return &api.Response{Status: 200, Body: []byte("upstream")}
		}
		go func() {
			time.Sleep(time.Second)
			b.source.Update(discovery.APIServices, apiService("projects"))
			time.Sleep(time.Second)
			close(late)
		}()
		b.do("GET /apis/project.example.com/v1/projects")
		b.upstream.mu.Lock()
		defer b.upstream.mu.Unlock()
		requested := b.upstream.forwarded[n:]
		if last := requested[len(requested)-1]; last.as.As != upstream.AsClient {
			t.Errorf("%d requests, the last of the gateway itself", len(requested))
		}
	})
}

// TestServedElsewhereWhileDefinitionsAreUnknown: a watch of what is not built in ends when
// nobody knows the definitions, at the latest when another server serves it.
func TestServedElsewhereWhileDefinitionsAreUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newAggregationBench(t, nil)
		b.source.Create(discovery.APIServices, apiService(""))
		synctest.Wait()
		resp := b.gateway.Serve(t.Context(), request("GET /apis/project.example.com/v1/projects?watch=1&resourceVersion=0"))
		if resp.Stream == nil {
			t.Fatalf("%d %s", resp.Status, resp.Body)
		}
		var w closeRecorder
		resp.Stream.Start(&w)
		b.gateway.Manager.Drop(discovery.CustomResourceDefinitions, errors.New("dropped"))
		synctest.Wait()
		b.source.Update(discovery.APIServices, apiService("projects"))
		synctest.Wait()
		if !w.closed {
			t.Error("the watch goes on")
		}
		resp.Done(0, nil)
	})
}
