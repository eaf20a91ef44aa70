package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	tides       = schema.GroupVersionResource{Group: "test.kubeweir.io", Version: "v1", Resource: "tides"}
)

// A face is one API server on the shared etcd.
type face struct {
	name   string
	client dynamic.Interface
}

func newFace(t *testing.T, name string, cfg *rest.Config) face {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return face{name, client}
}

func (f face) in(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	if gvr == definitions {
		return f.client.Resource(gvr)
	}
	return f.client.Resource(gvr).Namespace("default")
}

func object(t *testing.T, json string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(json)); err != nil {
		t.Fatal(err)
	}
	return u
}

// create creates an object as soon as its kind is served.
func (f face) create(ctx context.Context, t *testing.T, gvr schema.GroupVersionResource, json string) *unstructured.Unstructured {
	t.Helper()
	for {
		u, err := f.in(gvr).Create(ctx, object(t, json), metav1.CreateOptions{})
		switch {
		case err == nil:
			return u
		case !apierrors.IsNotFound(err) || ctx.Err() != nil:
			t.Fatalf("%s: create %s: %v", f.name, json, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// same reads an object from all servers and compares the results.
func same(ctx context.Context, t *testing.T, gvr schema.GroupVersionResource, want *unstructured.Unstructured, faces ...face) {
	t.Helper()
	for _, f := range faces {
		got, err := f.in(gvr).Get(ctx, want.GetName(), metav1.GetOptions{})
		for gvr == tides && apierrors.IsNotFound(err) && ctx.Err() == nil { // until the server has seen the definition
			got, err = f.in(gvr).Get(ctx, want.GetName(), metav1.GetOptions{})
		}
		if err != nil {
			t.Errorf("%s: get %s %s: %v", f.name, gvr.Resource, want.GetName(), err)
			continue
		}
		if !apiequality.Semantic.DeepEqual(got.Object, want.Object) {
			t.Errorf("%s: %s %s is\n%v\nwant\n%v", f.name, gvr.Resource, want.GetName(), got.Object, want.Object)
		}
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":%q}}`, name, value)
}

// patch sets the value in a ConfigMap.
func (f face) patch(ctx context.Context, t *testing.T, name, value string) *unstructured.Unstructured {
	t.Helper()
	u, err := f.in(configMaps).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"k":%q}}`, value), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("%s: patch %s: %v", f.name, name, err)
	}
	return u
}

// await reads a watch until an object has the wanted version.
func await(ctx context.Context, t *testing.T, f face, w watch.Interface, want *unstructured.Unstructured, kind watch.EventType) {
	t.Helper()
	for {
		select {
		case ev, ok := <-w.ResultChan():
			if !ok || ev.Type == watch.Error {
				t.Fatalf("%s: the watch ended: %v", f.name, ev.Object)
			}
			u := ev.Object.(*unstructured.Unstructured)
			if ev.Type == kind && u.GetName() == want.GetName() && (kind == watch.Deleted || u.GetResourceVersion() == want.GetResourceVersion()) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("%s: no %s event of %s", f.name, kind, want.GetName())
		}
	}
}

const tideDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"tides.test.kubeweir.io"},
"spec":{"group":"test.kubeweir.io","scope":"Namespaced","names":{"plural":"tides","singular":"tide","kind":"Tide","listKind":"TideList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"height":{"type":"integer"}}}}}}}]}}`

const webDeployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},
"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

func service(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`, name)
}

// TestTakeOver runs two kubeweirs on the etcd of a kube-apiserver: first next to kube-apiserver,
// then alone while etcd is killed and restarted, and then kube-apiserver takes over again.
func TestTakeOver(t *testing.T) {
	c := start(t, realkube.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kube := newFace(t, "kube-apiserver", c.AdminConfig())
	before := kube.create(ctx, t, configMaps, configMap("before", "kube"))
	gone := kube.create(ctx, t, configMaps, configMap("gone", "kube"))
	web := kube.create(ctx, t, deployments, webDeployment)
	first := kube.create(ctx, t, services, service("first"))
	kube.create(ctx, t, definitions, tideDefinition)
	low := kube.create(ctx, t, tides, `{"apiVersion":"test.kubeweir.io/v1","kind":"Tide","metadata":{"name":"low"},"spec":{"height":1}}`)

	var weirs []face
	var processes []*realkube.Standalone
	for i := range 2 {
		s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir(), Cluster: c, SharedStore: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		cfg, err := s.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, s)
		weirs = append(weirs, newFace(t, fmt.Sprint("kubeweir ", i), cfg))
	}
	a, b := weirs[0], weirs[1]
	all := []face{kube, a, b}

	// All three serve the same objects.
	for gvr, u := range map[schema.GroupVersionResource]*unstructured.Unstructured{configMaps: before, deployments: web, services: first, tides: low} {
		same(ctx, t, gvr, u, all...)
	}
	w, err := b.in(configMaps).Watch(ctx, metav1.ListOptions{ResourceVersion: gone.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for i, f := range all {
		u := f.patch(ctx, t, "before", fmt.Sprint("by all ", i))
		await(ctx, t, b, w, u, watch.Modified)
		same(ctx, t, configMaps, u, all...)
	}
	ips := map[string]bool{first.Object["spec"].(map[string]any)["clusterIP"].(string): true}
	for i, f := range all {
		u := f.create(ctx, t, services, service(fmt.Sprint("s", i)))
		ips[u.Object["spec"].(map[string]any)["clusterIP"].(string)] = true
		same(ctx, t, services, u, all...)
	}
	if len(ips) != 4 {
		t.Errorf("addresses %v, want 4", ips)
	}

	// Stop kube-apiserver, and kill etcd.
	if err := c.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	alone := a.create(ctx, t, configMaps, configMap("alone", "a"))
	await(ctx, t, b, w, alone, watch.Added)
	killAndStart(t, c)
	same(ctx, t, configMaps, soon(ctx, t, b, "alone"), a, b)
	alone = a.patch(ctx, t, "alone", "b")
	await(ctx, t, b, w, alone, watch.Modified)
	if err := b.in(configMaps).Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, b, w, gone, watch.Deleted)
	high := b.create(ctx, t, tides, `{"apiVersion":"test.kubeweir.io/v1","kind":"Tide","metadata":{"name":"high"},"spec":{"height":9}}`)
	if web, err = a.in(deployments).Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range processes {
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}

	// kube-apiserver takes over again.
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	same(ctx, t, configMaps, alone, kube)
	same(ctx, t, deployments, web, kube)
	same(ctx, t, services, first, kube)
	same(ctx, t, tides, high, kube)
	same(ctx, t, tides, low, kube)
	if _, err := kube.in(configMaps).Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a deleted object: %v", err)
	}
	kube.patch(ctx, t, "alone", "kube again")
	kube.create(ctx, t, services, service("last"))
	if list, err := kube.client.Resource(configMaps).Namespace(corev1.NamespaceAll).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) < 3 {
		t.Errorf("list: %v", err)
	}
}

// soon reads a ConfigMap, with retries while the store is unreachable.
func soon(ctx context.Context, t *testing.T, f face, name string) *unstructured.Unstructured {
	t.Helper()
	for {
		u, err := f.in(configMaps).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return u
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
	}
}
