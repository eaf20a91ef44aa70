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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// codecs are the serializers of kube-apiserver.
type codecs struct {
	t       *testing.T
	factory serializer.CodecFactory
}

func newCodecs(t *testing.T) codecs {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return codecs{t, serializer.NewCodecFactory(scheme)}
}

func (c codecs) info(enc api.Encoding) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(c.factory.SupportedMediaTypes(), enc.MediaType())
	if !ok {
		c.t.Fatalf("no serializer for %s", enc)
	}
	return info
}

func (c codecs) encode(enc api.Encoding, obj runtime.Object) []byte {
	var out bytes.Buffer
	if err := c.info(enc).Serializer.Encode(obj, &out); err != nil {
		c.t.Fatal(err)
	}
	return out.Bytes()
}

// frame is what the watch handler of kube-apiserver writes.
func (c codecs) frame(enc api.Encoding, event api.EventType, obj runtime.Object) []byte {
	var out bytes.Buffer
	stream := c.info(enc).StreamSerializer
	encoder := streaming.NewEncoder(stream.NewFrameWriter(&out), stream.Serializer)
	err := encoder.Encode(&metav1.WatchEvent{Type: event.String(), Object: runtime.RawExtension{Raw: c.encode(enc, obj)}})
	if err != nil {
		c.t.Fatal(err)
	}
	return out.Bytes()
}

// decode makes the object that a collection in enc has.
func (c codecs) decode(enc api.Encoding, pod *corev1.Pod) *object.Object {
	raw := bytes.TrimSuffix(c.encode(enc, pod), []byte("\n"))
	if enc == api.Protobuf {
		var err error
		if _, _, raw, err = object.ParseProtobufObject(raw); err != nil {
			c.t.Fatal(err)
		}
	}
	o, err := object.SchemaFor(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Decode(enc, raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

func samplePod(rv string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "u", ResourceVersion: rv, Labels: map[string]string{"app": "<web>"},
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// watchOfPods is a watch of pods that are kept in the encoding of rep.
func watchOfPods(t *testing.T, rep api.Representation) *Watch {
	t.Helper()
	r, err := NewRenderer(Options{DerivedBytes: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	w, ok := r.Watch(Feed{Resource: &Resource{APIVersion: "v1", Kind: "Pod"}, Stored: rep.Encoding}, rep, nil)
	if !ok {
		t.Fatalf("no form for %+v", rep)
	}
	return &w
}

// TestEventBytes compares the events of watches with those of kube-apiserver's
// serializers: with the object's own bytes and, where it left the selector, with those
// of before under the version of the change; and the ERROR event.
func TestEventBytes(t *testing.T) {
	c := newCodecs(t)
	failure := apierrors.NewResourceExpired("too old resource version: 1 (7)")
	status := failure.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		for _, transform := range []api.Transform{api.NoTransform, api.PartialMetadata} {
			w := watchOfPods(t, api.Representation{Encoding: enc, Transform: transform})
			shown := func(pod *corev1.Pod) runtime.Object {
				if transform == api.NoTransform {
					return pod
				}
				m := meta.AsPartialObjectMetadata(pod)
				m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(object.PartialKind))
				return m
			}
			var f Frames
			var want []byte
			w.Begin(&f)
			for _, event := range []api.EventType{api.Added, api.Modified, api.Deleted} {
				for _, rv := range []uint64{7, 1 << 40} {
					d := watchmux.Delivery{Event: &watchmux.Event{RV: rv}, Type: event, Object: c.decode(enc, samplePod("7")), RV: rv}
					if err := w.Event(&f, d); err != nil {
						t.Fatal(err)
					}
					want = append(want, c.frame(enc, event, shown(samplePod(formatRV(rv))))...)
				}
			}
			if got := join(f.List()); !bytes.Equal(got, want) {
				t.Errorf("%v %v:\n got %q\nwant %q", enc, transform, got, want)
			}
			w.Error(&f, failure)
			if got, want := join(f.List()), c.frame(enc, api.Error, &status); !bytes.Equal(got, want) {
				t.Errorf("%v %v:\n got %q\nwant %q", enc, transform, got, want)
			}
		}
	}
}

// TestBookmarkBytes: a bookmark is an empty object of the kind, as the upstream's own
// one was, and reduced to its metadata a PartialObjectMetadata.
func TestBookmarkBytes(t *testing.T) {
	c := newCodecs(t)
	bookmark := func(rv string, end bool) *corev1.Pod {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
		if end {
			pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		return pod
	}
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		learned := bytes.TrimSuffix(c.encode(enc, bookmark("5", false)), []byte("\n"))
		if enc == api.Protobuf {
			var err error
			if _, _, learned, err = object.ParseProtobufObject(learned); err != nil {
				t.Fatal(err)
			}
		}
		for _, end := range []bool{false, true} {
			var f Frames
			w := watchOfPods(t, api.Representation{Encoding: enc})
			if err := w.Bookmark(&f, learned, 123456, end); err != nil {
				t.Fatal(err)
			}
			if got, want := join(f.List()), c.frame(enc, api.Bookmark, bookmark("123456", end)); !bytes.Equal(got, want) {
				t.Errorf("%v:\n got %q\nwant %q", enc, got, want)
			}
			w = watchOfPods(t, api.Representation{Encoding: enc, Transform: api.PartialMetadata})
			if err := w.Bookmark(&f, learned, 123456, end); err != nil {
				t.Fatal(err)
			}
			m := meta.AsPartialObjectMetadata(bookmark("123456", end))
			m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(object.PartialKind))
			if got, want := join(f.List()), c.frame(enc, api.Bookmark, m); !bytes.Equal(got, want) {
				t.Errorf("%v metadata:\n got %q\nwant %q", enc, got, want)
			}
		}
	}
}

// TestFor: what can be given of what is kept, and what cannot.
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
