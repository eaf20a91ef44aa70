package registry

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
)

// benchStore keeps pods in protobuf, without conversion to an internal version: what
// is measured is the Store and the engine, and the encoding of a pod.
func benchStore(b *testing.B) *testStore {
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return newTestStore(b, func(o *StoreOptions) {
		o.Codec = scheme.Codecs.CodecForVersions(serializer, serializer, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
		o.ResourcePrefix = "/pods"
		o.GroupResource = schema.GroupResource{Resource: "pods"}
		o.NewFunc = func() runtime.Object { return &corev1.Pod{} }
	})
}

// benchPod is about 4 KB of protobuf.
func benchPod(i int) *corev1.Pod {
	container := func(name string) corev1.Container {
		var env []corev1.EnvVar
		for e := range 12 {
			env = append(env, corev1.EnvVar{Name: fmt.Sprintf("SERVICE_%d_URL", e), Value: "https://service.example.svc.cluster.local:8443/path"})
		}
		return corev1.Container{Name: name, Image: "registry.example.com/shop/" + name + ":2.41.0", Env: env}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("checkout-7d4b9c6f58-%05d", i),
			Namespace:   fmt.Sprintf("team-%d", i%20),
			Labels:      map[string]string{"app": "checkout", "shard": fmt.Sprint(i % 50)},
			Annotations: map[string]string{"checksum/config": strings.Repeat("0", 64)},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%200), Containers: []corev1.Container{container("web"), container("sidecar")}},
	}
}

func benchKey(i int) string {
	return fmt.Sprintf("/pods/team-%d/checkout-7d4b9c6f58-%05d", i%20, i)
}

func (s *testStore) seed(b *testing.B, n int) {
	b.Helper()
	for i := range n {
		if err := s.Create(b.Context(), benchKey(i), benchPod(i), nil, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s := benchStore(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.Create(b.Context(), benchKey(i), benchPod(i), &corev1.Pod{}, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	s.seed(b, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.Get(b.Context(), benchKey(i%100), storage.GetOptions{}, &corev1.Pod{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGuaranteedUpdate(b *testing.B) {
	s := benchStore(b)
	s.seed(b, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		err := s.GuaranteedUpdate(b.Context(), benchKey(i%100), &corev1.Pod{}, false, nil, func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			obj.(*corev1.Pod).Annotations["change"] = fmt.Sprint(i)
			return obj, nil, nil
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetList(b *testing.B) {
	s := benchStore(b)
	s.seed(b, 5000)
	selected := storage.SelectionPredicate{
		Label: labels.SelectorFromSet(labels.Set{"shard": "7"}),
		Field: fields.Everything(),
		GetAttrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			return obj.(*corev1.Pod).Labels, nil, nil
		},
	}
	limited := storage.Everything
	limited.Limit = 500
	for name, c := range map[string]struct {
		predicate storage.SelectionPredicate
		items     int
	}{
		"all":      {storage.Everything, 5000},
		"page=500": {limited, 500},
		"1 of 50":  {selected, 100},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var list corev1.PodList
				if err := s.GetList(b.Context(), "/pods", storage.ListOptions{Recursive: true, Predicate: c.predicate}, &list); err != nil || len(list.Items) != c.items {
					b.Fatal(len(list.Items), err)
				}
			}
		})
	}
}

// BenchmarkWatch is one change written and delivered to one watch.
func BenchmarkWatch(b *testing.B) {
	s := benchStore(b)
	s.seed(b, 1)
	w, err := s.Watch(b.Context(), "/pods", storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		err := s.GuaranteedUpdate(b.Context(), benchKey(0), &corev1.Pod{}, false, nil, func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			obj.(*corev1.Pod).Annotations["change"] = fmt.Sprint(i)
			return obj, nil, nil
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
		<-w.ResultChan()
	}
}
