package cache_test

import (
	"bytes"
	"compress/gzip"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/soak"
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
	var err error
	b.reader, err = read.New(read.Options{Now: func() time.Time { return b.now }, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.reader.Close)
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

// readRequest parses "namespace/name?query" (either part may be missing).
func readRequest(t testing.TB, path string, rep api.Representation) *read.Request {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	namespace, name, _ := strings.Cut(path, "/")
	req := &read.Request{Namespace: namespace, Name: name, Rep: rep}
	opts, err := api.ParseListOptions(query)
	if err != nil {
		t.Fatal(err)
	}
	req.Options = opts
	return req
}

// bodyOf writes a response and checks its length and encoding.
func bodyOf(t testing.TB, resp *api.Response) []byte {
	t.Helper()
	data := resp.Body
	if resp.BodyTo != nil {
		var out bytes.Buffer
		n, err := resp.BodyTo.WriteTo(&out)
		if err != nil || n != int64(out.Len()) {
			t.Fatalf("wrote %d of %d: %v", n, out.Len(), err)
		}
		data = out.Bytes()
	}
	if resp.Length >= 0 && resp.Length != int64(len(data)) {
		t.Errorf("length %d, want %d", resp.Length, len(data))
	}
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r.Multistream(false)
		if data, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	case "zstd":
		r, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if data, err = r.DecodeAll(data, nil); err != nil {
			t.Fatal(err)
		}
	case "":
	default:
		t.Errorf("Content-Encoding %q", coding)
	}
	return data
}

// The oracle consists of upstream's own types and serializers.

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
	kept := []cachetest.Object{}
	for _, o := range objs {
		if keep(o) {
			kept = append(kept, o)
		}
	}
	return kept
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

// TestListBytes compares lists with the output of upstream's serializers for the same objects.
func TestListBytes(t *testing.T) {
	b := newReadBench(t)
	b.fill(200, 1500)
	b.manage()
	type listCase struct {
		path string
		keep func(cachetest.Object) bool
	}
	cases := []listCase{
		{"?resourceVersion=0", func(cachetest.Object) bool { return true }},
		{"ns-1?resourceVersion=0", func(o cachetest.Object) bool { return o.GetNamespace() == "ns-1" }},
		{"nowhere?resourceVersion=0", func(cachetest.Object) bool { return false }},
		{"?resourceVersion=0&labelSelector=tenth%3D0", func(o cachetest.Object) bool { return o.GetLabels()["tenth"] == "0" }},
		{"?resourceVersion=0&labelSelector=tenth+in+(0,3),app", func(o cachetest.Object) bool {
			return (o.GetLabels()["tenth"] == "0" || o.GetLabels()["tenth"] == "3") && o.GetLabels()["app"] != ""
		}},
		{"ns-0?resourceVersion=0&fieldSelector=metadata.name%3Dweb-00004", func(o cachetest.Object) bool { return o.GetName() == "web-00004" }},
		{"?resourceVersion=0&fieldSelector=metadata.namespace%3Dns-2", func(o cachetest.Object) bool { return o.GetNamespace() == "ns-2" }},
		{"?", func(cachetest.Object) bool { return true }},
	}
	for _, gvr := range []schema.GroupVersionResource{cachetest.Pods, cachetest.Nodes, cachetest.Widgets} {
		for name, rep := range representations() {
			enc := rep.Encoding
			if gvr == cachetest.Widgets {
				enc = api.JSON
			}
			c := b.collection(gvr, enc)
			for i, tc := range cases {
				if gvr == cachetest.Nodes && (!strings.HasPrefix(tc.path, "?") || strings.Contains(tc.path, "namespace")) {
					continue
				}
				var codings []api.Compression
				if soak.Enabled() || i == 0 || name == "json" { // each with each form and each list, but not every pair
					codings = []api.Compression{api.Gzip, api.Zstd}
				}
				t.Run(gvr.Resource+" "+name+" "+tc.path, func(t *testing.T) {
					b.checkList(t, c, tc.path, rep, filterObjects(b.source.Objects(gvr), tc.keep), codings)
				})
			}
		}
	}
}

func (b *readBench) checkList(t *testing.T, c *cache.Collection, path string, rep api.Representation, objs []cachetest.Object, codings []api.Compression) {
	t.Helper()
	req := readRequest(t, path, rep)
	req.MostRecent = true
	resp, err := b.reader.List(t.Context(), c, req)
	if rep.Encoding == api.Protobuf && (rep.Transform == api.Table || c.Resource().Custom && rep.Transform != api.PartialMetadata) {
		if !errors.Is(err, read.ErrForward) {
			t.Fatalf("%v, want ErrForward", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body := bodyOf(t, resp)
	if resp.Status != 200 || resp.Header.Get("Content-Type") != rep.Encoding.MediaType() || resp.Header.Get("Cache-Control") != "no-cache, private" || resp.Header.Has("Vary") {
		t.Errorf("status %d, %v", resp.Status, resp.Header)
	}
	listMeta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(c.RV(), 10)}
	if rep.Transform == api.Table {
		b.checkTable(t, c.Resource(), body, rep, listMeta, objs)
	} else if want := expected(t, c.Resource(), objs, listMeta, rep); !bytes.Equal(body, want) {
		t.Errorf("got  %.600q\nwant %.600q", body, want)
	}
	for _, coding := range codings {
		req.Compression = coding
		resp, err := b.reader.List(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		compressed := bodyOf(t, resp)
		if !bytes.Equal(compressed, body) {
			t.Errorf("%v: the body differs", coding)
		}
		if big := len(body) > api.CompressionThreshold; big != (resp.Header.Get("Content-Encoding") == coding.String()) || big != (resp.Header.Get("Vary") == "Accept-Encoding") {
			t.Errorf("%v of %d bytes: %v", coding, len(body), resp.Header)
		}
	}
}

// checkTable decodes a Table into its Go type and encodes it again; its rows must be those of the
// objects.
func (b *readBench) checkTable(t *testing.T, res *source.Resource, body []byte, rep api.Representation, listMeta metav1.ListMeta, objs []cachetest.Object) {
	t.Helper()
	var got metav1.Table
	if err := stdjson.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if again := encodeAs(t, &got, rep); !bytes.Equal(again, body) {
		t.Errorf("got  %.400q\nwant %.400q", body, again)
	}
	if got.ResourceVersion != listMeta.ResourceVersion || len(got.Rows) != len(objs) {
		t.Fatalf("resourceVersion %s, %d rows; want %s, %d", got.ResourceVersion, len(got.Rows), listMeta.ResourceVersion, len(objs))
	}
	objs = shown(objs, rep)
	for i, row := range got.Rows {
		if row.Cells[0] != objs[i].GetName() || row.Cells[1] != objs[i].GetCreationTimestamp().UTC().Format(time.RFC3339) {
			t.Errorf("row %d: %v", i, row.Cells)
		}
		var want []byte
		switch rep.IncludeObject {
		case api.IncludeMetadata:
			want, _ = stdjson.Marshal(partial(objs[i]))
		case api.IncludeObjectFull:
			o := objs[i].DeepCopyObject()
			o.GetObjectKind().SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
			want, _ = stdjson.Marshal(o)
		case api.IncludeNone:
			want = []byte("null")
		}
		raw := row.Object.Raw
		if raw == nil {
			raw = []byte("null")
		}
		var compact bytes.Buffer
		if err := stdjson.Compact(&compact, raw); err != nil || compact.String() != string(want) {
			t.Errorf("row %d: object %s\nwant %s", i, compact.String(), want)
		}
	}
}

// TestGetBytes is TestListBytes for gets.
func TestGetBytes(t *testing.T) {
	b := newReadBench(t)
	b.fill(20, 1500)
	big := cachetest.BigPod("ns-0/huge", "node-1", 200_000)
	b.source.Create(cachetest.Pods, big)
	b.manage()
	for _, gvr := range []schema.GroupVersionResource{cachetest.Pods, cachetest.Nodes, cachetest.Widgets} {
		for name, rep := range representations() {
			enc := rep.Encoding
			if gvr == cachetest.Widgets {
				enc = api.JSON
			}
			c := b.collection(gvr, enc)
			for _, o := range b.source.Objects(gvr) {
				t.Run(gvr.Resource+" "+name+" "+o.GetName(), func(t *testing.T) { b.checkGet(t, c, rep, o) })
			}
		}
	}
}

func (b *readBench) checkGet(t *testing.T, c *cache.Collection, rep api.Representation, o cachetest.Object) {
	t.Helper()
	req := readRequest(t, o.GetNamespace()+"/"+o.GetName()+"?resourceVersion=0", rep)
	resp, err := b.reader.Get(t.Context(), c, req)
	if rep.Encoding == api.Protobuf && (rep.Transform == api.Table || c.Resource().Custom && rep.Transform != api.PartialMetadata) {
		if !errors.Is(err, read.ErrForward) {
			t.Fatalf("%v, want ErrForward", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body := bodyOf(t, resp)
	res := c.Resource()
	o = shown([]cachetest.Object{o}, rep)[0]
	switch rep.Transform {
	case api.Table:
		b.checkTable(t, res, body, rep, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, []cachetest.Object{o})
	case api.PartialMetadata:
		if want := encodeAs(t, partial(o), rep); !bytes.Equal(body, want) {
			t.Errorf("got  %q\nwant %q", body, want)
		}
	default:
		typed := o.DeepCopyObject()
		typed.GetObjectKind().SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
		if want := encodeAs(t, typed, rep); !bytes.Equal(body, want) {
			t.Errorf("got  %.500q\nwant %.500q", body, want)
		}
	}
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		req.Compression = coding
		if resp, err = b.reader.Get(t.Context(), c, req); err != nil || !bytes.Equal(bodyOf(t, resp), body) {
			t.Errorf("%v: the body differs (%v)", coding, err)
		}
		if (len(body) > api.CompressionThreshold) != resp.Header.Has("Content-Encoding") {
			t.Errorf("%v of %d bytes: %v", coding, len(body), resp.Header)
		}
	}
}
