package read_test

import (
	"context"

	stdjson "encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// readBench is a source, its collections and a Reader.
type readBench struct {
	t       testing.TB
	source  *cachetest.Source
	manager *cache.Manager
	reader  *read.Reader
	now     time.Time
	res     map[schema.GroupVersionResource]*source.Resource
}

func newReadBench(t testing.TB) *readBench { return newLimitedReadBench(t, cache.Limits{}) }

func newLimitedReadBench(t testing.TB, limits cache.Limits) *readBench {
	t.Helper()
	b := &readBench{t: t, now: time.Now().Add(time.Hour), res: map[schema.GroupVersionResource]*source.Resource{}}
	resources := []*source.Resource{cachetest.PodResource(), cachetest.NodeResource(), cachetest.WidgetResource()}
	for _, res := range resources {
		res.Printer = table.NewDefaultPrinter()
		b.res[res.GroupVersionResource] = res
	}
	b.source = cachetest.New(resources...)
	b.manager = cachetest.NewManager(t, b.source, limits)
	t.Cleanup(b.manager.Close)
	b.reader = cachetest.NewReader(t, read.Options{Now: func() time.Time { return b.now }, Wait: time.Millisecond})
	return b
}

// fill creates n pods of about size bytes in four namespaces on ten nodes, and a widget and a node
// for every ten of them.
func (b *readBench) fill(n, size int) {
	for i := range n {
		pod := cachetest.BigPod(fmt.Sprintf("ns-%d/web-%05d", i%4, i), fmt.Sprintf("node-%d", i%10), size, fmt.Sprintf("tenth=%d", i%10), "app=<web>")
		b.source.Create(cachetest.Pods, pod)
		if i%10 == 0 {
			widget := cachetest.Widget(fmt.Sprintf("ns-%d/widget-%05d", i%4, i), "red", fmt.Sprintf("tenth=%d", i%10))
			widget.SetAnnotations(map[string]string{"a": "<b>"})
			b.source.Create(cachetest.Widgets, widget)
			b.source.Create(cachetest.Nodes, cachetest.Node(fmt.Sprintf("node-%05d", i)))
		}
	}
}

// manage gives most objects managedFields, some of them so many that parts of their bytes are not
// copied.
func (b *readBench) manage() {
	for gvr := range b.res {
		for i, o := range b.source.Objects(gvr) {
			if i%5 == 4 {
				continue
			}
			var managers []metav1.ManagedFieldsEntry
			for m := range i%3 + 1 {
				managers = append(managers, metav1.ManagedFieldsEntry{
					Manager: fmt.Sprint("<m", m, ">"), Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:x":"` + strings.Repeat("}", i%7*m*150) + `"}}`),
				})
			}
			o = o.DeepCopyObject().(cachetest.Object)
			o.SetManagedFields(managers)
			b.source.Update(gvr, o)
		}
	}
}

// collection returns a collection that holds everything the source has.
func (b *readBench) collection(gvr schema.GroupVersionResource, enc api.Encoding) *cache.Collection {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	c, err := b.manager.Collection(ctx, b.res[gvr], enc)
	if err != nil {
		b.t.Fatal(err)
	}
	newest := uint64(0)
	for _, o := range b.source.Objects(gvr) {
		rv, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		newest = max(newest, rv)
	}
	if err := c.WaitFor(ctx, newest, 20*time.Second); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}

func encodeAs(t testing.TB, obj runtime.Object, rep api.Representation) []byte {
	t.Helper()
	scheme := testScheme()
	var encoder runtime.Encoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Pretty: rep.Pretty, StreamingCollectionsEncoding: true})
	if rep.Encoding == api.Protobuf {
		encoder = protobuf.NewSerializer(scheme, scheme)
	}
	data, err := runtime.Encode(encoder, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// shown returns objects as they are before they are encoded as rep.
func shown(objs []cachetest.Object, rep api.Representation) []cachetest.Object {
	if !rep.DropManagedFields {
		return objs
	}
	dropped := make([]cachetest.Object, len(objs))
	for i, o := range objs {
		dropped[i] = o.DeepCopyObject().(cachetest.Object)
		dropped[i].SetManagedFields(nil)
	}
	return dropped
}

// expected returns the list that upstream would send.
func expected(t testing.TB, res *source.Resource, objs []cachetest.Object, listMeta metav1.ListMeta, rep api.Representation) []byte {
	t.Helper()
	objs = shown(objs, rep)
	if rep.Transform == api.PartialMetadata {
		list := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
			ListMeta: listMeta,
		}
		for _, o := range objs {
			list.Items = append(list.Items, *partial(o))
		}
		return encodeAs(t, list, rep)
	}
	switch res.Resource {
	case "pods":
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: listMeta, Items: []corev1.Pod{}}
		for _, o := range objs {
			pod := *o.(*corev1.Pod)
			pod.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, pod)
		}
		return encodeAs(t, list, rep)
	case "nodes":
		list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: listMeta, Items: []corev1.Node{}}
		for _, o := range objs {
			node := *o.(*corev1.Node)
			node.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, node)
		}
		return encodeAs(t, list, rep)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"kind": res.Kind + "List", "apiVersion": res.GroupVersion().String()}, Items: []unstructured.Unstructured{}}
	list.SetResourceVersion(listMeta.ResourceVersion)
	list.SetContinue(listMeta.Continue)
	list.SetRemainingItemCount(listMeta.RemainingItemCount)
	for _, o := range objs {
		u := *o.DeepCopyObject().(*unstructured.Unstructured)
		u.SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
		list.Items = append(list.Items, u)
	}
	return encodeAs(t, list, rep)
}

func partial(o cachetest.Object) *metav1.PartialObjectMetadata {
	m := meta.AsPartialObjectMetadata(o)
	m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return m
}

// listMetaOf reads the metadata of a JSON list.
func listMetaOf(t testing.TB, body []byte) metav1.ListMeta {
	t.Helper()
	var list struct{ Metadata metav1.ListMeta }
	if err := stdjson.Unmarshal(body, &list); err != nil {
		t.Fatalf("%v: %s", err, body[:min(len(body), 300)])
	}
	return list.Metadata
}

func filterObjects(objs []cachetest.Object, keep func(cachetest.Object) bool) []cachetest.Object {
	filtered := []cachetest.Object{}
	for _, o := range objs {
		if keep(o) {
			filtered = append(filtered, o)
		}
	}
	return filtered
}

// representations returns all representations of lists.
func representations() map[string]api.Representation {
	all := map[string]api.Representation{
		"json":                    {},
		"json pretty":             {Pretty: true},
		"metadata":                {Transform: api.PartialMetadata},
		"metadata pretty":         {Transform: api.PartialMetadata, Pretty: true},
		"table":                   {Transform: api.Table},
		"table pretty":            {Transform: api.Table, Pretty: true},
		"table object":            {Transform: api.Table, IncludeObject: api.IncludeObjectFull},
		"table none":              {Transform: api.Table, IncludeObject: api.IncludeNone},
		"protobuf":                {Encoding: api.Protobuf},
		"protobuf metadata":       {Encoding: api.Protobuf, Transform: api.PartialMetadata},
		"protobuf table (served)": {Encoding: api.Protobuf, Transform: api.Table},
	}
	for name, rep := range maps.Clone(all) {
		rep.DropManagedFields = true
		all[name+" dropped"] = rep
	}
	return all
}

// discard counts writes and drops them.
type discard struct{ writes int }

func (d *discard) Write(p []byte) (int, error) {
	d.writes++
	return len(p), nil
}

func drain(b *testing.B, resp *api.Response) int64 {
	if resp.BodyTo == nil {
		return int64(len(resp.Body))
	}
	n, err := resp.BodyTo.WriteTo(io.Writer(&discard{}))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// fill5000 creates 5,000 pods of about 6 KB in 20 namespaces.
func fill5000(b *testing.B, r *readBench) {
	b.Helper()
	for i := range 5000 {
		r.source.Create(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%02d/web-%05d", i%20, i), fmt.Sprintf("node-%03d", i%200), 6000, fmt.Sprintf("fiftieth=%d", i%50), "app=web"))
	}
}
