package cbor_test

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// samplePod returns the JSON of a pod like those in real clusters, about 6 KB.
func samplePod(t testing.TB) []byte {
	t.Helper()
	text, err := json.Marshal(encodingtest.Pod(1))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func BenchmarkAppend(b *testing.B) {
	text := samplePod(b)
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var err error
		if dst, err = cbor.Append(dst[:0], text, cbor.Untyped); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(dst))/float64(len(text)), "CBOR/JSON")
}

// BenchmarkAppendByApimachinery decodes and encodes with apimachinery, for comparison.
func BenchmarkAppendByApimachinery(b *testing.B) {
	text := samplePod(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var v any
		if err := utiljson.Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
		if _, err := direct.Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodeByApimachinery measures what kube-apiserver does once it has the object.
func BenchmarkEncodeByApimachinery(b *testing.B) {
	text := samplePod(b)
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		b.Fatal(err)
	}
	scheme := builtInTypes(b)
	encoder := serializer.NewSerializer(scheme, scheme)
	var out bytes.Buffer
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		out.Reset()
		if err := encoder.EncodeNondeterministic(&pod, &out); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAppendAllocates makes sure that transcoding a pod only allocates when dst grows.
func TestAppendAllocates(t *testing.T) {
	text := samplePod(t)
	dst := make([]byte, 0, 2*len(text))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := cbor.Append(dst, text, cbor.Untyped); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
