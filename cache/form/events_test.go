package form

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

var podSchema = object.SchemaFor(schema.GroupVersionResource{Version: "v1", Resource: "pods"})

// decode returns the object that a collection in enc stores.
func decode(t *testing.T, enc api.Encoding, pod *corev1.Pod) *object.Object {
	t.Helper()
	o, err := podSchema.Decode(enc, encodingtest.Raw(t, enc, pod))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func samplePod(rv string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "u", ResourceVersion: rv, Labels: map[string]string{"app": "<web>"},
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "<a>", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}, {Manager: "b"}},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// watchOfPods returns a watch of pods stored in the encoding of rep.
func watchOfPods(t *testing.T, rep api.Representation) *Watch {
	t.Helper()
	r, err := NewRenderer(Options{DerivedBytes: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	w, ok := r.Watch(Collection{Resource: &Resource{APIVersion: "v1", Kind: "Pod"}, Stored: rep.Encoding}, rep, nil)
	if !ok {
		t.Fatalf("no form for %+v", rep)
	}
	return &w
}

// TestEventBytes compares the events of watches with those of kube-apiserver's serializers: with
// the object's own bytes; if it left the selector, with its previous state at the version of the
// change; and the ERROR event.
func TestEventBytes(t *testing.T) {
	failure := apierrors.NewResourceExpired("too old resource version: 1 (7)")
	status := failure.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	for _, enc := range encodingtest.Encodings {
		for _, rep := range []api.Representation{{}, {Transform: api.PartialMetadata}, {DropManagedFields: true}, {Transform: api.PartialMetadata, DropManagedFields: true}} {
			rep.Encoding = enc
			w := watchOfPods(t, rep)
			shown := func(pod *corev1.Pod) runtime.Object {
				if rep.DropManagedFields {
					pod.ManagedFields = nil
				}
				if rep.Transform == api.NoTransform {
					return pod
				}
				m := meta.AsPartialObjectMetadata(pod)
				m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(encoding.PartialKind))
				return m
			}
			var f Frames
			var want []byte
			w.Begin(&f)
			for _, event := range []api.EventType{api.Added, api.Modified, api.Deleted} {
				for _, rv := range []uint64{7, 1 << 40} {
					d := watchmux.Delivery{Event: &watchmux.Event{RV: rv}, Type: event, Object: decode(t, enc, samplePod("7")), RV: rv}
					if err := w.Event(&f, d); err != nil {
						t.Fatal(err)
					}
					want = append(want, encodingtest.Frame(t, enc, event.String(), shown(samplePod(formatRV(rv))))...)
				}
			}
			if got := bytes.Join(f.List(), nil); !bytes.Equal(got, want) {
				t.Errorf("%+v:\n got %q\nwant %q", rep, got, want)
			}
			w.Error(&f, failure)
			if got, want := bytes.Join(f.List(), nil), encodingtest.Frame(t, enc, "ERROR", &status); !bytes.Equal(got, want) {
				t.Errorf("%+v:\n got %q\nwant %q", rep, got, want)
			}
		}
	}
}

// TestBookmarkBytes checks that a bookmark is an empty object of the kind, like the upstream's, or
// a PartialObjectMetadata.
func TestBookmarkBytes(t *testing.T) {
	bookmark := func(rv string, end bool) *corev1.Pod {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
		if end {
			pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		return pod
	}
	for _, enc := range encodingtest.Encodings {
		learned := encodingtest.Raw(t, enc, bookmark("5", false))
		for _, end := range []bool{false, true} {
			var f Frames
			w := watchOfPods(t, api.Representation{Encoding: enc})
			if err := w.Bookmark(&f, learned, 123456, end); err != nil {
				t.Fatal(err)
			}
			if got, want := bytes.Join(f.List(), nil), encodingtest.Frame(t, enc, "BOOKMARK", bookmark("123456", end)); !bytes.Equal(got, want) {
				t.Errorf("%v:\n got %q\nwant %q", enc, got, want)
			}
			w = watchOfPods(t, api.Representation{Encoding: enc, Transform: api.PartialMetadata})
			if err := w.Bookmark(&f, learned, 123456, end); err != nil {
				t.Fatal(err)
			}
			m := meta.AsPartialObjectMetadata(bookmark("123456", end))
			m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(encoding.PartialKind))
			if got, want := bytes.Join(f.List(), nil), encodingtest.Frame(t, enc, "BOOKMARK", m); !bytes.Equal(got, want) {
				t.Errorf("%v metadata:\n got %q\nwant %q", enc, got, want)
			}
		}
	}
}

// TestFor checks which representations are supported.
func TestFor(t *testing.T) {
	r := &Renderer{}
	builtin := &Resource{APIVersion: "v1", Kind: "Pod"}
	custom := &Resource{APIVersion: "example.com/v1", Kind: "Widget", Custom: true}
	for _, test := range []struct {
		res    *Resource
		stored api.Encoding
		rep    api.Representation
		ok     bool
	}{
		{builtin, api.JSON, api.Representation{}, true},
		{builtin, api.Protobuf, api.Representation{Encoding: api.Protobuf}, true},
		{builtin, api.Protobuf, api.Representation{}, false},
		{builtin, api.JSON, api.Representation{Encoding: api.Protobuf}, false},
		{builtin, api.JSON, api.Representation{DropManagedFields: true}, true},
		{builtin, api.JSON, api.Representation{Encoding: api.Protobuf, DropManagedFields: true}, false},
		{builtin, api.JSON, api.Representation{Transform: api.PartialMetadata, DropManagedFields: true}, true},
		{builtin, api.JSON, api.Representation{Transform: api.PartialMetadata}, true},
		{builtin, api.JSON, api.Representation{Encoding: api.Protobuf, Transform: api.PartialMetadata}, false},
		{builtin, api.JSON, api.Representation{Transform: api.Table}, false}, // without a printer
		{custom, api.JSON, api.Representation{}, true},
		{custom, api.JSON, api.Representation{Encoding: api.Protobuf}, false},
		{custom, api.JSON, api.Representation{Encoding: api.Protobuf, Transform: api.PartialMetadata}, true},
	} {
		if f := r.For(test.res, test.stored, test.rep); (f != nil) != test.ok {
			t.Errorf("%s kept in %v as %+v: %T", test.res.Kind, test.stored, test.rep, f)
		}
	}
}
