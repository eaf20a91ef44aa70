package layout

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kubeweir/kubeweir/origin/builtin/groups"
	"github.com/kubeweir/kubeweir/origin/registry"
	engine "github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const namespace = "layout"

// bench is a kube-apiserver, and the Stores of an origin on the same etcd.
type bench struct {
	t       *testing.T
	ctx     context.Context
	client  dynamic.Interface
	engine  engine.Engine
	getter  generic.RESTOptionsGetter
	custom  generic.RESTOptionsGetter
	kinds   map[schema.GroupResource]metav1.APIResource // served by kube-apiserver
	version map[schema.GroupResource]string             // the version that kube-apiserver serves
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	t.Cleanup(cancel)
	cluster, err := realkube.Start(ctx, realkube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{t: t, ctx: ctx}
	if b.client, err = dynamic.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	e, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{cluster.EtcdURL()}, CompactionInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	b.engine = e
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	generic := groups.NewGenericConfig(netip.MustParseAddrPort("127.0.0.1:6443"), netip.MustParsePrefix("10.0.0.0/24"), groups.DefaultResources())
	factory, err := groups.NewStorageFactory(generic, registry.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	decorator := registry.Decorator(registry.Options{Engine: e})
	b.getter = groups.NewRESTOptions(factory, decorator, nil)
	b.custom = registry.NewRESTOptionsGetter(decorator, func(gr schema.GroupResource, _ runtime.Object) (*storagebackend.ConfigForResource, string, error) {
		return storagebackend.NewDefaultConfig("", unstructured.UnstructuredJSONScheme).ForResource(gr), gr.Group + "/" + gr.Resource, nil
	}, nil)
	b.discover(cluster)
	return b
}

// discover finds the resources that kube-apiserver serves, each in its preferred version.
func (b *bench) discover(cluster *realkube.Cluster) {
	b.t.Helper()
	clients, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	lists, err := clients.Discovery().ServerPreferredResources()
	if err != nil {
		b.t.Fatal(err)
	}
	b.kinds = make(map[schema.GroupResource]metav1.APIResource)
	b.version = make(map[schema.GroupResource]string)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gr := gv.WithResource(r.Name).GroupResource()
			b.kinds[gr], b.version[gr] = r, gv.Version
		}
	}
}

// upstream returns a client of a resource at kube-apiserver.
func (b *bench) upstream(gr schema.GroupResource) dynamic.ResourceInterface {
	b.t.Helper()
	if _, ok := b.kinds[gr]; !ok {
		b.t.Fatalf("%s is not served", gr)
	}
	r := b.client.Resource(gr.WithVersion(b.version[gr]))
	if b.kinds[gr].Namespaced {
		return r.Namespace(namespace)
	}
	return r
}

// A stored resource is a built-in resource with the Store of the origin.
type stored struct {
	storage.Interface
	prefix           string
	newFunc, newList func() runtime.Object
}

// stored opens the Store of a built-in resource.
func (b *bench) stored(gr schema.GroupResource) stored {
	b.t.Helper()
	internal := schema.GroupVersion{Group: gr.Group, Version: runtime.APIVersionInternal}
	maker := func(kind string) func() runtime.Object {
		return func() runtime.Object {
			obj, err := legacyscheme.Scheme.New(internal.WithKind(kind))
			if err != nil {
				b.t.Fatal(err)
			}
			return obj
		}
	}
	kind := b.kinds[gr].Kind
	return b.open(b.getter, gr, maker(kind), maker(kind+"List"))
}

func (b *bench) open(getter generic.RESTOptionsGetter, gr schema.GroupResource, newFunc, newList func() runtime.Object) stored {
	b.t.Helper()
	opts, err := getter.GetRESTOptions(gr, newFunc())
	if err != nil {
		b.t.Fatal(err)
	}
	prefix := "/" + strings.TrimPrefix(opts.ResourcePrefix, "/")
	s, _, err := opts.Decorator(opts.StorageConfig, prefix, nil, newFunc, newList, nil, nil, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return stored{s, prefix, newFunc, newList}
}

// key returns the key of an object.
func (s stored) key(namespace, name string) string {
	if namespace == "" {
		return s.prefix + "/" + name
	}
	return s.prefix + "/" + namespace + "/" + name
}

func (b *bench) list(s stored, opts storage.ListOptions) (runtime.Object, []runtime.Object, metav1.ListInterface) {
	b.t.Helper()
	list := s.newList()
	opts.Recursive = true
	if opts.Predicate.Label == nil {
		opts.Predicate.Label, opts.Predicate.Field = storage.Everything.Label, storage.Everything.Field
	}
	if err := s.GetList(b.ctx, s.prefix, opts, list); err != nil {
		b.t.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		b.t.Fatal(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		b.t.Fatal(err)
	}
	return list, items, accessor
}

func accessor(t *testing.T, obj runtime.Object) metav1.Object {
	t.Helper()
	a, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// manifests are objects of resources that differ in how they are stored: keys that differ from the
// resource's name (services, nodes, ingresses), protobuf with maps and quantities, cluster scope, a
// time to live (events), and a stored version other than v1.
const manifests = `
apiVersion: v1
kind: ConfigMap
metadata: {name: plain, labels: {b: "2", a: "1"}}
data: {z: last, a: first, m: middle}
binaryData: {raw: AAECAw==}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
type: kubernetes.io/basic-auth
stringData: {username: u, password: p}
---
apiVersion: v1
kind: Node
metadata: {name: worker}
status: {capacity: {cpu: "4", memory: 8Gi, ephemeral-storage: 100M}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, annotations: {note: "ü €"}, finalizers: [example.com/hold]}
spec:
  containers:
  - name: web
    image: registry.example.com/web:1
    resources: {requests: {cpu: 250m, memory: 64Mi}}
    livenessProbe: {httpGet: {path: /livez, port: 8080}}
    envFrom: [{configMapRef: {name: plain}}]
  volumes: [{name: tmp, emptyDir: {sizeLimit: 1Gi}}]
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {replicas: 2, selector: {app: old}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: v1
kind: Event
metadata: {name: happened}
involvedObject: {kind: Pod, namespace: layout, name: web-0}
reason: Pulled
type: Normal
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 9
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: layout}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader}
spec: {holderIdentity: me, renewTime: "2026-01-02T03:04:05.678901Z"}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/fast
parameters: {tier: gold}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: layout}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [nothing]}]}
  validations: [{expression: "true"}]
`

// apply creates the manifests through kube-apiserver and returns its responses.
func (b *bench) apply(manifests string) []*unstructured.Unstructured {
	b.t.Helper()
	var made []*unstructured.Unstructured
	for _, doc := range bytes.Split([]byte(manifests), []byte("---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
			b.t.Fatal(err)
		}
		created, err := b.upstream(b.resourceOf(obj)).Create(b.ctx, obj, metav1.CreateOptions{})
		if err != nil {
			b.t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
		made = append(made, created)
	}
	return made
}

func (b *bench) resourceOf(obj *unstructured.Unstructured) schema.GroupResource {
	b.t.Helper()
	gvk := obj.GroupVersionKind()
	for gr, r := range b.kinds {
		if gr.Group == gvk.Group && r.Kind == gvk.Kind && !strings.Contains(gr.Resource, "/") {
			return gr
		}
	}
	b.t.Fatalf("no resource has the kind %s", gvk)
	return schema.GroupResource{}
}

// TestLayout uses one kube-apiserver for all its parts, which build on each other.
func TestLayout(t *testing.T) {
	b := newBench(t)
	if _, err := b.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(b.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects := b.apply(manifests)
	t.Run("everything", func(t *testing.T) { b.everything(t) })
	for _, obj := range objects {
		t.Run(obj.GetKind(), func(t *testing.T) { b.back(t, obj) })
	}
	t.Run("continue tokens", func(t *testing.T) { b.continues(t) })
	t.Run("custom resource", func(t *testing.T) { b.customResource(t) })
}

// everything checks that kube-apiserver and the origin read the same objects and versions of each
// built-in resource, and that the origin would write the same bytes as kube-apiserver.
func (b *bench) everything(t *testing.T) {
	objects, resources := 0, 0
	for gr, r := range b.kinds {
		if strings.Contains(gr.Resource, "/") || !slices.Contains(r.Verbs, "list") || elsewhere(gr) {
			continue
		}
		resources++
		upstream, err := b.client.Resource(gr.WithVersion(b.version[gr])).List(b.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := b.stored(gr)
		versions := make(map[string]string)
		for _, item := range upstream.Items {
			versions[s.key(item.GetNamespace(), item.GetName())] = item.GetResourceVersion()
		}
		_, items, _ := b.list(s, storage.ListOptions{})
		for _, item := range items {
			a := accessor(t, item)
			key := s.key(a.GetNamespace(), a.GetName())
			objects++
			if versions[key] != a.GetResourceVersion() {
				t.Errorf("%s: version %s, at kube-apiserver %q", key, a.GetResourceVersion(), versions[key])
			}
			delete(versions, key)
			// A store skips the write, and the version stays, if the bytes are the same.
			out := s.newFunc()
			if err := s.GuaranteedUpdate(b.ctx, key, out, false, nil, unchanged, nil); err != nil {
				t.Errorf("%s: %v", key, err)
			} else if now := accessor(t, out).GetResourceVersion(); now != a.GetResourceVersion() {
				t.Errorf("%s: the bytes differ: version %s, was %s", key, now, a.GetResourceVersion())
			}
		}
		for key := range versions {
			t.Errorf("%s: not found", key)
		}
	}
	if objects < 150 || resources < 40 {
		t.Errorf("compared only %d objects of %d resources", objects, resources)
	}
	t.Logf("%d objects of %d resources", objects, resources)
}

// elsewhere reports whether the resource has no storage of its own: componentstatuses are not
// stored, the events of events.k8s.io are those of the core group, and two groups belong to other
// servers within kube-apiserver.
func elsewhere(gr schema.GroupResource) bool {
	return gr.Resource == "componentstatuses" ||
		slices.Contains([]string{"events.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}, gr.Group)
}

func unchanged(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
	return obj, nil, nil
}

func label(key, value string) storage.UpdateFunc {
	return func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		a, err := meta.Accessor(obj)
		if err != nil {
			return nil, nil, err
		}
		labels := a.GetLabels()
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[key] = value
		a.SetLabels(labels)
		return obj, nil, nil
	}
}

// back checks that kube-apiserver reads what the origin updates, creates and deletes.
func (b *bench) back(t *testing.T, obj *unstructured.Unstructured) {
	gr := b.resourceOf(obj)
	s, upstream := b.stored(gr), b.upstream(gr)
	b.round(t, s, upstream, obj)
}

func (b *bench) round(t *testing.T, s stored, upstream dynamic.ResourceInterface, obj *unstructured.Unstructured) {
	t.Helper()
	// Controllers update ValidatingAdmissionPolicies and others after their creation. Apply the change
	// to the current version, whatever it is.
	changed := s.newFunc()
	key := s.key(obj.GetNamespace(), obj.GetName())
	if err := s.GuaranteedUpdate(b.ctx, key, changed, false, nil, label("changed-by", "origin"), nil); err != nil {
		t.Fatal(err)
	}
	got := b.get(t, upstream, obj.GetName(), accessor(t, changed).GetResourceVersion())
	if got.GetLabels()["changed-by"] != "origin" || got.GetUID() != obj.GetUID() {
		t.Errorf("kube-apiserver reads %v", got)
	}
	// Create and delete a copy through the origin.
	twin := changed.DeepCopyObject()
	a := accessor(t, twin)
	a.SetName(obj.GetName() + "-twin")
	a.SetUID("5f0c2a1e-0000-4000-8000-000000000001")
	a.SetResourceVersion("")
	twinKey := s.key(a.GetNamespace(), a.GetName())
	if err := s.Create(b.ctx, twinKey, twin, changed, 0); err != nil {
		t.Fatal(err)
	}
	b.get(t, upstream, a.GetName(), accessor(t, changed).GetResourceVersion())
	if err := s.Delete(b.ctx, twinKey, changed, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Update through kube-apiserver what the origin has written.
	got, err := upstream.Patch(b.ctx, obj.GetName(), "application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed-by":"kube-apiserver"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Get(b.ctx, key, storage.GetOptions{}, changed); err != nil {
		t.Fatal(err)
	}
	if a := accessor(t, changed); a.GetLabels()["changed-by"] != "kube-apiserver" || a.GetResourceVersion() != got.GetResourceVersion() {
		t.Errorf("the origin reads %v", changed)
	}
}

// get reads an object through kube-apiserver. A read without a resourceVersion goes to etcd.
func (b *bench) get(t *testing.T, upstream dynamic.ResourceInterface, name, version string) *unstructured.Unstructured {
	t.Helper()
	got, err := upstream.Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetResourceVersion() != version {
		t.Errorf("%s: kube-apiserver reads version %s, want %s", name, got.GetResourceVersion(), version)
	}
	return got
}

// continues checks that each server accepts the other's continue tokens.
func (b *bench) continues(t *testing.T) {
	gr := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	s, upstream := b.stored(gr), b.upstream(gr)
	_, all, _ := b.list(s, storage.ListOptions{})
	names := func(objs []runtime.Object) (names []string) {
		for _, o := range objs {
			names = append(names, accessor(t, o).GetName())
		}
		return names
	}
	const page = 7
	begun, err := upstream.List(b.ctx, metav1.ListOptions{Limit: page})
	if err != nil {
		t.Fatal(err)
	}
	_, rest, listMeta := b.list(s, storage.ListOptions{Predicate: storage.SelectionPredicate{
		Label: storage.Everything.Label, Field: storage.Everything.Field, Limit: 1000, Continue: begun.GetContinue(),
	}})
	if fmt.Sprint(names(rest)) != fmt.Sprint(names(all[page:])) || listMeta.GetResourceVersion() != begun.GetResourceVersion() {
		t.Errorf("kube-apiserver's token: items %s at version %s", names(rest), listMeta.GetResourceVersion())
	}
	_, first, listMeta := b.list(s, storage.ListOptions{Predicate: storage.SelectionPredicate{
		Label: storage.Everything.Label, Field: storage.Everything.Field, Limit: page,
	}})
	if len(first) != page || *listMeta.GetRemainingItemCount() != int64(len(all)-page) {
		t.Errorf("%d items, %d remain of %d", len(first), *listMeta.GetRemainingItemCount(), len(all))
	}
	goneOn, err := upstream.List(b.ctx, metav1.ListOptions{Continue: listMeta.GetContinue()})
	if err != nil {
		t.Fatal(err)
	}
	if len(goneOn.Items) != len(all)-page || goneOn.Items[0].GetName() != names(all)[page] || goneOn.GetResourceVersion() != listMeta.GetResourceVersion() {
		t.Errorf("the origin's token: %d items at version %s", len(goneOn.Items), goneOn.GetResourceVersion())
	}
}

// customResource checks that a custom resource is stored as JSON, under its group.
func (b *bench) customResource(t *testing.T) {
	gr := schema.GroupResource{Group: "layout.example.com", Resource: "widgets"}
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: gr.String()},
	}
	keep := true
	definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: gr.Group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gr.Resource, Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
		}},
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		t.Fatal(err)
	}
	definitions := b.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(b.ctx, &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.established(t, definitions, definition.Name)
	b.kinds[gr], b.version[gr] = metav1.APIResource{Name: gr.Resource, Namespaced: true, Kind: "Widget"}, "v1"
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "layout.example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"z": int64(1), "a": []any{"x", 1.5, nil, true}, "html": "<&>"},
	}}
	created, err := b.upstream(gr).Create(b.ctx, widget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := b.open(b.custom, gr,
		func() runtime.Object {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "layout.example.com/v1", "kind": "Widget"}}
		},
		func() runtime.Object { return &unstructured.UnstructuredList{Object: map[string]any{}} })
	out := s.newFunc()
	if err := s.GuaranteedUpdate(b.ctx, s.key(namespace, "one"), out, false, nil, unchanged, nil); err != nil {
		t.Fatal(err)
	}
	if now := accessor(t, out).GetResourceVersion(); now != created.GetResourceVersion() {
		t.Errorf("the bytes differ: version %s, was %s", now, created.GetResourceVersion())
	}
	b.round(t, s, b.upstream(gr), created)
}

// established waits until the custom resource is served.
func (b *bench) established(t *testing.T, definitions dynamic.ResourceInterface, name string) {
	t.Helper()
	w, err := definitions.Watch(b.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("%v", event.Object)
		}
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return
			}
		}
	}
	t.Fatalf("%s is not served", name)
}
