package object_test

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func BenchmarkDecodeJSON(b *testing.B)     { benchmarkDecode(b, api.JSON) }
func BenchmarkDecodeProtobuf(b *testing.B) { benchmarkDecode(b, api.Protobuf) }

func benchmarkDecode(b *testing.B, enc api.Encoding) {
	s := object.SchemaFor(podResource)
	raws := make([][]byte, 256)
	for i := range raws {
		raws[i] = encodingtest.Raw(b, enc, encodingtest.Pod(i))
	}
	b.SetBytes(int64(len(raws[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Decode(enc, raws[i%len(raws)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	s := object.SchemaFor(podResource)
	o := decode(b, s, api.JSON, encodingtest.Raw(b, api.JSON, encodingtest.Pod(7)))
	for _, c := range []struct{ labels, fields string }{
		{"tier=backend", ""},
		{"tier in (backend,frontend),!canary,pod-template-hash", ""},
		{"", "spec.nodeName=node-7"},
		{"app.kubernetes.io/name=app-7", "status.phase!=Failed"},
	} {
		b.Run(fmt.Sprintf("%s;%s", c.labels, c.fields), func(b *testing.B) {
			f := filter(b, s, "", "", c.labels, c.fields)
			b.ReportAllocs()
			for b.Loop() {
				if !f.Matches(o) {
					b.Fatal("no match")
				}
			}
		})
	}
}

func filter(t testing.TB, s *object.Schema, namespace, name, labelSel, fieldSel string) *object.Filter {
	t.Helper()
	l, err := labels.Parse(labelSel)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fields.ParseSelector(fieldSel)
	if err != nil {
		t.Fatal(err)
	}
	out, err := object.NewFilter(s, namespace, name, l, f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMemoryBudget checks that a decoded pod takes at most 1.5 times its bytes, which leaves room
// for the containers that hold it.
func TestMemoryBudget(t *testing.T) {
	pods := 5000
	if raceEnabled {
		pods = 500 // make unit also measures without the race detector
	}
	for _, enc := range encodingtest.Encodings {
		t.Run(enc.String(), func(t *testing.T) {
			s := object.SchemaFor(podResource)
			raws := make([][]byte, pods)
			bytes := 0
			for i := range raws {
				raw := encodingtest.Raw(t, enc, encodingtest.Pod(i))
				raws[i] = append(make([]byte, 0, len(raw)), raw...)
				bytes += len(raw)
			}
			objects := make([]*object.Object, pods)
			before := heapInUse()
			for i, raw := range raws {
				objects[i] = decode(t, s, enc, raw)
			}
			extra := heapInUse() - before
			t.Logf("%d bytes of raw and %d of scanned form per pod (%.3f)", bytes/pods, extra/int64(pods), float64(bytes+int(extra))/float64(bytes))
			if extra > int64(bytes)/4 {
				t.Errorf("scanned form takes %d bytes per pod of %d bytes, want at most a quarter", extra/int64(pods), bytes/pods)
			}
			runtime.KeepAlive(objects)
			runtime.KeepAlive(raws)
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
