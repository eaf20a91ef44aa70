package charts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	partGroup = "parts.charts.example.com"
	partName  = "parts." + partGroup
	// soon bounds the wait for clients to see the effect of a changed definition.
	soon = 2 * time.Second
	// change bounds the wait until a definition's change is announced in discovery and OpenAPI.
	change = 30 * time.Second
)

func partDefinition(scope apiextensions.ResourceScope, versions ...string) *apiextensions.CustomResourceDefinition {
	definition := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: partName},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: partGroup, Scope: scope,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "parts", Kind: "Part"},
		},
	}
	for i, version := range versions {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{"size": {Type: "integer"}},
			}},
		})
	}
	return definition
}

// life tests the life cycle of a definition as clients of one server see it.
type life struct {
	definitions clientset.Interface
	dynamic     dynamic.Interface
	discovery   discovery.DiscoveryInterface
}

func (l *life) parts(version string) dynamic.NamespaceableResourceInterface {
	return l.dynamic.Resource(schema.GroupVersionResource{Group: partGroup, Version: version, Resource: "parts"})
}

func part(version, name string, finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(partGroup + "/" + version)
	object.SetKind("Part")
	object.SetName(name)
	object.SetFinalizers(finalizers)
	return object
}

// TestDefinitions follows definitions from creation to deletion, at each of the servers.
func TestDefinitions(t *testing.T) {
	originConfig, err := origin.AdminConfig()
	must(t, err)
	for i, config := range []*rest.Config{kube.AdminConfig(), originConfig} {
		t.Run(serverNames[i], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			l := &life{}
			var err error
			l.definitions, err = clientset.NewForConfig(config)
			must(t, err)
			l.dynamic, err = dynamic.NewForConfig(config)
			must(t, err)
			l.discovery, err = discovery.NewDiscoveryClientForConfig(config)
			must(t, err)
			l.begin(ctx, t)
			l.change(ctx, t)
			l.end(ctx, t)
			l.again(ctx, t)
		})
	}
}

// within repeats check until it returns nil, for at most d.
func within(ctx context.Context, t *testing.T, d time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func (l *life) create(ctx context.Context, t *testing.T, definition *apiextensions.CustomResourceDefinition) {
	t.Helper()
	_, err := l.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{})
	must(t, err)
	within(ctx, t, soon, "established", func() error {
		made, err := l.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, partName, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(made.Status.Conditions, func(c apiextensions.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensions.Established && c.Status == apiextensions.ConditionTrue
		}) {
			err = fmt.Errorf("conditions %+v", made.Status.Conditions)
		}
		return err
	})
}

// begin checks that objects of an established definition can be created immediately, and that
// discovery lists it soon.
func (l *life) begin(ctx context.Context, t *testing.T) {
	t.Helper()
	l.create(ctx, t, partDefinition(apiextensions.ClusterScoped, "v1", "v2"))
	_, err := l.parts("v2").Create(ctx, part("v2", "first"), metav1.CreateOptions{})
	must(t, err)
	within(ctx, t, soon, "discovery", func() error {
		for _, version := range []string{"v1", "v2"} {
			if _, err := l.discovery.ServerResourcesForGroupVersion(partGroup + "/" + version); err != nil {
				return err
			}
		}
		groups, err := l.discovery.ServerGroups()
		if err == nil && !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == partGroup }) {
			err = errors.New("the group is not listed")
		}
		return err
	})
	list, err := l.parts("v1").List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].GetAPIVersion() != partGroup+"/v1" {
		t.Errorf("list: %v", list.Items)
	}
}

// open starts a watch for the next changes.
func (l *life) open(ctx context.Context, t *testing.T, version string) watch.Interface {
	t.Helper()
	list, err := l.parts(version).List(ctx, metav1.ListOptions{})
	must(t, err)
	watching, err := l.parts(version).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	must(t, err)
	return watching
}

// untilEnd reads a watch until it ends and returns its events as "TYPE name".
func untilEnd(t *testing.T, watching watch.Interface) []string {
	t.Helper()
	defer watching.Stop()
	late := time.NewTimer(change)
	defer late.Stop()
	var events []string
	for {
		select {
		case event, more := <-watching.ResultChan():
			if !more {
				return events
			}
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				events = append(events, string(event.Type)+" "+object.GetName())
			}
		case <-late.C:
			t.Errorf("the watch goes on after %v", events)
			return events
		}
	}
}

// change checks that a version that is no longer served disappears soon and its watches end, while
// other versions keep working.
func (l *life) change(ctx context.Context, t *testing.T) {
	t.Helper()
	watching := l.open(ctx, t, "v2")
	_, err := l.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, partName, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`), metav1.PatchOptions{})
	must(t, err)
	within(ctx, t, soon, "v2 is not served", func() error {
		if _, err := l.parts("v2").List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("list: %v", err)
		}
		if _, err := l.discovery.ServerResourcesForGroupVersion(partGroup + "/v2"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("discovery: %v", err)
		}
		return nil
	})
	if events := untilEnd(t, watching); len(events) != 0 {
		t.Errorf("the watch of v2 had the events %v", events)
	}
	if _, err := l.parts("v1").Get(ctx, "first", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// end checks the deletion of a definition: its objects are deleted, those with finalizers once
// these are removed; creates are rejected; watches report the deletions and end.
func (l *life) end(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := l.parts("v1").Create(ctx, part("v1", "held", "example.com/hold"), metav1.CreateOptions{})
	must(t, err)
	watching := l.open(ctx, t, "v1")
	must(t, l.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, partName, metav1.DeleteOptions{}))
	within(ctx, t, soon, "objects are deleted", func() error {
		held, err := l.parts("v1").Get(ctx, "held", metav1.GetOptions{})
		if err == nil && held.GetDeletionTimestamp() == nil {
			err = errors.New("held is not being deleted")
		}
		return err
	})
	if _, err := l.parts("v1").Create(ctx, part("v1", "late"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create while it ends: %v", err)
	}
	_, err = l.parts("v1").Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
	events := untilEnd(t, watching)
	slices.Sort(events)
	if want := []string{"DELETED first", "DELETED held", "MODIFIED held"}; !slices.Equal(events, want) {
		t.Errorf("the watch had the events %v, want %v", events, want)
	}
	within(ctx, t, change, "the definition is gone", func() error {
		if _, err := l.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, partName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %v", err)
		}
		return nil
	})
	within(ctx, t, soon, "nothing is served", func() error {
		if _, err := l.parts("v1").List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("list: %v", err)
		}
		if _, err := l.discovery.ServerResourcesForGroupVersion(partGroup + "/v1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("discovery: %v", err)
		}
		return nil
	})
}

// again checks that a new definition of the same name with another scope has none of the first
// one's objects.
func (l *life) again(ctx context.Context, t *testing.T) {
	t.Helper()
	l.create(ctx, t, partDefinition(apiextensions.NamespaceScoped, "v1"))
	var list *unstructured.UnstructuredList
	within(ctx, t, soon, "it is served", func() (err error) {
		list, err = l.parts("v1").List(ctx, metav1.ListOptions{})
		return err
	})
	if len(list.Items) != 0 {
		t.Errorf("list: %v", list.Items)
	}
	watching := l.open(ctx, t, "v1")
	defer watching.Stop()
	_, err := l.parts("v1").Namespace("default").Create(ctx, part("v1", "second"), metav1.CreateOptions{})
	must(t, err)
	if event := <-watching.ResultChan(); event.Type != watch.Added {
		t.Errorf("event %v", event)
	}
	if read, err := l.parts("v1").Namespace("default").Get(ctx, "second", metav1.GetOptions{}); err != nil || read.GetNamespace() != "default" {
		t.Errorf("get: %v %v", read, err)
	}
	must(t, l.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, partName, metav1.DeleteOptions{}))
	untilEnd(t, watching)
}
