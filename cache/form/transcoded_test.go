package form

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// inCBOR returns kube-apiserver's encoding of an object or a list, with sorted map members.
func inCBOR(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := serializer.NewSerializer(nil, nil).Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	return cbortest.Sorted(t, b.Bytes())
}

func eventInCBOR(t *testing.T, event api.EventType, obj runtime.Object) []byte {
	t.Helper()
	return inCBOR(t, &metav1.WatchEvent{Type: event.String(), Object: runtime.RawExtension{Raw: inCBOR(t, obj)}})
}

func partial(obj metav1.Object) *metav1.PartialObjectMetadata {
	m := meta.AsPartialObjectMetadata(obj)
	m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(encoding.PartialKind))
	return m
}

func newTestRenderer(t *testing.T) *Renderer {
	t.Helper()
	r, err := NewRenderer(Options{DerivedBytes: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// bodyOf returns the body of a response with sorted map members.
func bodyOf(t *testing.T, resp *api.Response, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/cbor" {
		t.Errorf("Content-Type %q", got)
	}
	body := resp.Body
	if resp.BodyTo != nil {
		var b bytes.Buffer
		if _, err := resp.BodyTo.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		body = b.Bytes()
	}
	if resp.Length != int64(len(body)) {
		t.Errorf("Length %d of %d bytes", resp.Length, len(body))
	}
	return cbortest.Sorted(t, body)
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, cbortest.Diagnose(got), cbortest.Diagnose(want))
	}
}

func sampleSecret(i int) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%03d", i), Namespace: "default", ResourceVersion: "7", Annotations: map[string]string{"a": "<é>"}},
		Data:       map[string][]byte{"token": {0, 1, 255}},
	}
}

// TestTranscodedReads compares lists and gets in CBOR with apimachinery's.
func TestTranscodedReads(t *testing.T) {
	res := &Resource{APIVersion: "v1", Kind: "Secret"}
	for _, n := range []int{0, 1, 300} {
		list := &corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Secret{}}
		metas := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: encoding.PartialListKind, APIVersion: encoding.PartialAPIVersion}, ListMeta: list.ListMeta}
		var objs sliceOfObjects
		for i := range n {
			s := sampleSecret(i)
			o, err := object.SchemaFor(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Decode(api.JSON, encodingtest.Raw(t, api.JSON, s))
			if err != nil {
				t.Fatal(err)
			}
			objs = append(objs, o)
			metas.Items = append(metas.Items, *partial(s))
			s.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, *s)
		}
		r := newTestRenderer(t)
		l := &List{Objects: objs, Kind: "SecretList", APIVersion: "v1", RV: 9}
		for _, pass := range []string{"first", "again"} {
			resp, err := r.List(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR}), l, Client{})
			same(t, pass+" list", bodyOf(t, resp, err), inCBOR(t, list))
			resp, err = r.List(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR, Transform: api.PartialMetadata}), l, Client{})
			same(t, pass+" metadata", bodyOf(t, resp, err), inCBOR(t, metas))
		}
		if n == 0 {
			continue
		}
		resp, err := r.Get(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR}), objs[0], Client{})
		same(t, "get", bodyOf(t, resp, err), inCBOR(t, sampleSecret(0)))
		resp, err = r.Get(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR, Transform: api.PartialMetadata}), objs[0], Client{})
		same(t, "get of metadata", bodyOf(t, resp, err), inCBOR(t, partial(sampleSecret(0))))
	}
}

// TestTranscodedCustom checks that custom resources equal their JSON, also in lists with sorted
// members.
func TestTranscodedCustom(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "n", "resourceVersion": "7"},
		"spec": map[string]any{"n": int64(1), "f": 0.5, "b": "YQ=="},
	}}
	o, err := object.CustomSchema(nil).Decode(api.JSON, encodingtest.Raw(t, api.JSON, u))
	if err != nil {
		t.Fatal(err)
	}
	r := newTestRenderer(t)
	res := &Resource{APIVersion: "example.com/v1", Kind: "Widget", Custom: true}
	l := &List{Objects: sliceOfObjects{o}, Kind: "WidgetList", APIVersion: "example.com/v1", RV: 9}
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*u}, Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": "9", "continue": ""},
	}}
	resp, err := r.List(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR}), l, Client{})
	same(t, "list", bodyOf(t, resp, err), inCBOR(t, list))
	resp, err = r.Get(r.For(res, api.JSON, api.Representation{Encoding: api.CBOR, Transform: api.PartialMetadata}), o, Client{})
	same(t, "metadata", bodyOf(t, resp, err), inCBOR(t, partial(u)))
}

// TestTranscodedEvents compares watch events, bookmarks and the ERROR event in CBOR with
// apimachinery's.
func TestTranscodedEvents(t *testing.T) {
	failure := apierrors.NewResourceExpired("too old resource version: 1 (7)")
	status := failure.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	for _, transform := range []api.Transform{api.NoTransform, api.PartialMetadata} {
		w, ok := newTestRenderer(t).Watch(Collection{Resource: &Resource{APIVersion: "v1", Kind: "Pod"}, Stored: api.JSON}, api.Representation{Encoding: api.CBOR, Transform: transform}, nil)
		if !ok {
			t.Fatal("no form")
		}
		if got := w.Header().Get("Content-Type"); got != "application/cbor-seq" {
			t.Errorf("Content-Type %q", got)
		}
		shown := func(pod *corev1.Pod) runtime.Object {
			if transform == api.NoTransform {
				return pod
			}
			return partial(pod)
		}
		var f Frames
		for _, event := range []api.EventType{api.Added, api.Modified, api.Deleted} {
			for _, rv := range []uint64{7, 1 << 40} {
				w.Begin(&f)
				d := watchmux.Delivery{Event: &watchmux.Event{RV: rv}, Type: event, Object: decode(t, api.JSON, samplePod("7")), RV: rv}
				if err := w.Event(&f, d); err != nil {
					t.Fatal(err)
				}
				same(t, event.String(), cbortest.Sorted(t, bytes.Join(f.List(), nil)), eventInCBOR(t, event, shown(samplePod(formatRV(rv)))))
			}
		}
		for _, end := range []bool{false, true} {
			bookmark := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}
			learned := encodingtest.Raw(t, api.JSON, bookmark)
			if err := w.Bookmark(&f, learned, 123456, end); err != nil {
				t.Fatal(err)
			}
			if bookmark.ResourceVersion = "123456"; end {
				bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			}
			same(t, "bookmark", cbortest.Sorted(t, bytes.Join(f.List(), nil)), eventInCBOR(t, api.Bookmark, shown(bookmark)))
		}
		w.Error(&f, failure)
		same(t, "ERROR", cbortest.Sorted(t, bytes.Join(f.List(), nil)), eventInCBOR(t, api.Error, &status))
	}
}
