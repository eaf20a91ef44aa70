package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/google/go-cmp/cmp"
)

const testLimit = 1 << 20

// podList has n pods of roughly size bytes each, with what is awkward to scan.
func podList(n, size int) *corev1.PodList {
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "abc"},
	}
	for i := range n {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%d", i), Namespace: "default", ResourceVersion: fmt.Sprint(i + 1),
				Annotations: map[string]string{"awkward": `\"}]{[` + "\\", "unicode": "\u2028é", "filler": strings.Repeat(`a "quoted" word, `, size/24)},
			},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "registry/image:v1"}}},
		})
	}
	return list
}

func encodeJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encodeProtobuf(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func collect(items *[][]byte) func([]byte) error {
	return func(item []byte) error {
		*items = append(*items, item)
		return nil
	}
}

// readers give the same bytes in different portions.
func readers(body []byte) map[string]io.Reader {
	return map[string]io.Reader{
		"whole":   bytes.NewReader(body),
		"bytes":   iotest.OneByteReader(bytes.NewReader(body)),
		"halves":  iotest.HalfReader(bytes.NewReader(body)),
		"dataEOF": iotest.DataErrReader(bytes.NewReader(body)),
	}
}

func TestReadJSONListOfTypedItems(t *testing.T) {
	list := podList(20, 900)
	body := encodeJSON(t, list)
	for name, r := range readers(body) {
		t.Run(name, func(t *testing.T) {
			var items [][]byte
			meta, err := ReadJSONList(r, ItemHead("v1", "Pod"), testLimit, collect(&items))
			if err != nil {
				t.Fatal(err)
			}
			if want := (ListMeta{Kind: "PodList", APIVersion: "v1", ResourceVersion: "4711", Continue: "abc"}); meta != want {
				t.Errorf("meta = %+v, want %+v", meta, want)
			}
			if len(items) != len(list.Items) {
				t.Fatalf("%d items, want %d", len(items), len(list.Items))
			}
			for i := range items {
				pod := list.Items[i].DeepCopy()
				pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
				if want := encodeJSON(t, pod); !bytes.Equal(items[i], want) {
					t.Errorf("item %d differs from its watch form: %s", i, cmp.Diff(string(want), string(items[i])))
				}
			}
		})
	}
}

func TestReadJSONListForms(t *testing.T) {
	head := ItemHead("v1", "Pod")
	tests := map[string]struct {
		body  string
		meta  ListMeta
		items []string
	}{
		"custom resources, sorted members": {
			`{"apiVersion":"ex.com/v1","items":[{"apiVersion":"ex.com/v1","kind":"Widget","spec":{}}],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"12"}}` + "\n",
			ListMeta{Kind: "WidgetList", APIVersion: "ex.com/v1", ResourceVersion: "12", Continue: ""}, []string{`{"apiVersion":"ex.com/v1","kind":"Widget","spec":{}}`},
		},
		"items null":  {`{"kind":"PodList","items":null,"metadata":{"resourceVersion":"1"}}`, ListMeta{Kind: "PodList", ResourceVersion: "1"}, nil},
		"items empty": {`{"items": [ ] }`, ListMeta{}, nil},
		"indented": {
			"{\n  \"kind\": \"PodList\",\n  \"items\": [\n    {\n      \"metadata\": {}\n    },\n    {\n  \"kind\": \"Pod\" }\n  ]\n}\n",
			ListMeta{Kind: "PodList"},
			[]string{`{"kind":"Pod","apiVersion":"v1",` + "\n      \"metadata\": {}\n    }", "{\n  \"kind\": \"Pod\" }"},
		},
		"empty item":      {`{"items":[{},{ }]}`, ListMeta{}, []string{`{"kind":"Pod","apiVersion":"v1"}`, `{"kind":"Pod","apiVersion":"v1" }`}},
		"unknown members": {`{"x":1.5e3,"y":[true,null,{"items":[]}],"items":[],"z":"\\\""}`, ListMeta{}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, r := range readers([]byte(tt.body)) {
				var items [][]byte
				meta, err := ReadJSONList(r, head, testLimit, collect(&items))
				if err != nil {
					t.Fatal(err)
				}
				if meta != tt.meta {
					t.Errorf("meta = %+v, want %+v", meta, tt.meta)
				}
				var got []string
				for _, item := range items {
					got = append(got, string(item))
				}
				if diff := cmp.Diff(tt.items, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestReadJSONListRefuses(t *testing.T) {
	tests := map[string]string{
		`{"kind":"Status","apiVersion":"v1","status":"Failure"}`: "not a list",
		`[]`:                          "malformed JSON",
		`{"items":[{]}`:               "malformed JSON",
		`{"items":[1]}`:               "an item that is an object",
		`{"items":[{}],"items":[{}]}`: "twice",
		`{"items":[{} {}]}`:           "malformed JSON",
		`{"items":[]} x`:              "want the end",
		`{"items":nil}`:               "items are",
		`{"items":[],"metadata":{"resourceVersion":5}}`:     "metadata of the list",
		`{"items":[{"a":` + strings.Repeat("[", maxDepth+1): "too deeply",
	}
	for body, want := range tests {
		_, err := ReadJSONList(strings.NewReader(body), nil, testLimit, func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want one about %q", body, err, want)
		}
	}
}

// TestTruncatedLists cuts the bodies at every byte: none may pass for whole.
func TestTruncatedLists(t *testing.T) {
	list := podList(2, 100)
	jsonBody, protoBody := encodeJSON(t, list), encodeProtobuf(t, list)
	none := func([]byte) error { return nil }
	for i := range jsonBody {
		if _, err := ReadJSONList(bytes.NewReader(jsonBody[:i]), nil, testLimit, none); !errors.Is(err, io.ErrUnexpectedEOF) && i > 0 {
			t.Fatalf("JSON cut at %d of %d: %v", i, len(jsonBody), err)
		}
	}
	// What follows the contents in the envelope may be missing: two empty strings.
	for i := range len(protoBody) - 4 {
		if _, err := ReadProtobufList(bytes.NewReader(protoBody[:i]), testLimit, none); err == nil {
			t.Fatalf("protobuf cut at %d of %d passes", i, len(protoBody))
		}
	}
}

func TestReadProtobufList(t *testing.T) {
	list := podList(20, 900)
	for name, r := range readers(encodeProtobuf(t, list)) {
		t.Run(name, func(t *testing.T) {
			var items [][]byte
			meta, err := ReadProtobufList(r, testLimit, collect(&items))
			if err != nil {
				t.Fatal(err)
			}
			if want := (ListMeta{Kind: "PodList", APIVersion: "v1", ResourceVersion: "4711", Continue: "abc"}); meta != want {
				t.Errorf("meta = %+v, want %+v", meta, want)
			}
			if len(items) != len(list.Items) {
				t.Fatalf("%d items, want %d", len(items), len(list.Items))
			}
			for i := range items {
				want, err := list.Items[i].Marshal()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(items[i], want) {
					t.Errorf("item %d differs", i)
				}
			}
		})
	}
}

func TestListLimits(t *testing.T) {
	list := podList(1, 100_000)
	none := func([]byte) error { return nil }
	if _, err := ReadJSONList(bytes.NewReader(encodeJSON(t, list)), nil, 10_000, none); !errors.Is(err, ErrTooLarge) {
		t.Errorf("JSON: %v", err)
	}
	if _, err := ReadProtobufList(bytes.NewReader(encodeProtobuf(t, list)), 10_000, none); !errors.Is(err, ErrTooLarge) {
		t.Errorf("protobuf: %v", err)
	}
	// Many small items pass, however long the list.
	many := podList(200, 1000)
	if _, err := ReadJSONList(bytes.NewReader(encodeJSON(t, many)), nil, 10_000, none); err != nil {
		t.Errorf("JSON: %v", err)
	}
	if _, err := ReadProtobufList(bytes.NewReader(encodeProtobuf(t, many)), 10_000, none); err != nil {
		t.Errorf("protobuf: %v", err)
	}
}

func TestVisitErrorIsReturnedAsItIs(t *testing.T) {
	list := podList(3, 10)
	stop := func([]byte) error { return io.EOF }
	if _, err := ReadJSONList(bytes.NewReader(encodeJSON(t, list)), nil, testLimit, stop); err != io.EOF {
		t.Errorf("JSON: %v", err)
	}
	if _, err := ReadProtobufList(bytes.NewReader(encodeProtobuf(t, list)), testLimit, stop); err != io.EOF {
		t.Errorf("protobuf: %v", err)
	}
}

// TestItemsAreOwned scribbles over each item: no other may change.
func TestItemsAreOwned(t *testing.T) {
	list := podList(50, 200)
	check := func(t *testing.T, read func(visit func([]byte) error) error) {
		var sums []string
		if err := read(func(item []byte) error {
			sums = append(sums, string(item))
			for i := range item {
				item[i] = 'x'
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		i := 0
		if err := read(func(item []byte) error {
			if string(item) != sums[i] {
				t.Errorf("item %d is not the same twice", i)
			}
			if cap(item) > len(item)+len(item)/4+64 {
				t.Errorf("item %d of %d bytes holds %d", i, len(item), cap(item))
			}
			i++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	jsonBody, protoBody := encodeJSON(t, list), encodeProtobuf(t, list)
	t.Run("json", func(t *testing.T) {
		check(t, func(visit func([]byte) error) error {
			_, err := ReadJSONList(bytes.NewReader(jsonBody), ItemHead("v1", "Pod"), testLimit, visit)
			return err
		})
	})
	t.Run("protobuf", func(t *testing.T) {
		check(t, func(visit func([]byte) error) error {
			_, err := ReadProtobufList(bytes.NewReader(protoBody), testLimit, visit)
			return err
		})
	})
}

func FuzzReadJSONList(f *testing.F) {
	f.Add(encodeJSON(f, podList(2, 50)), uint8(3))
	f.Add([]byte(`{"apiVersion":"v1","items":[{"a":"\\\"}"}],"metadata":{}}`), uint8(1))
	f.Add([]byte(`{"items":null}`), uint8(200))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		var items [][]byte
		meta, err := ReadJSONList(&portions{body, int(portion) + 1}, ItemHead("v1", "Pod"), 4096, collect(&items))
		if !json.Valid(body) {
			return // the splitter promises nothing about what is between the brackets
		}
		var want struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(body, &want) != nil || err != nil {
			return
		}
		if strings.Count(string(body), `"items"`) == 1 && len(items) != len(want.Items) && !bytes.ContainsAny(body, `\`) {
			t.Fatalf("%d items, want %d", len(items), len(want.Items))
		}
		for _, item := range items {
			if !json.Valid(item) {
				t.Fatalf("item is not JSON: %q", item)
			}
		}
		_ = meta
	})
}

func FuzzReadProtobufList(f *testing.F) {
	f.Add(encodeProtobuf(f, podList(2, 50)), uint8(3))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		var items [][]byte
		_, err := ReadProtobufList(&portions{body, int(portion) + 1}, 4096, collect(&items))
		if err != nil {
			return
		}
		_, message, err := openEnvelope(body)
		if err != nil {
			return // the whole envelope repeats a field; the streaming reader does not
		}
		var want corev1.PodList
		if want.Unmarshal(message) == nil && len(want.Items) != len(items) {
			t.Fatalf("%d items, want %d", len(items), len(want.Items))
		}
	})
}

// portions reads at most n bytes at a time.
type portions struct {
	b []byte
	n int
}

func (p *portions) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.b)
	p.b = p.b[n:]
	return n, nil
}

func BenchmarkReadJSONList(b *testing.B) {
	body := encodeJSON(b, realisticPods(500))
	head := ItemHead("v1", "Pod")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadJSONList(bytes.NewReader(body), head, 32<<20, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadProtobufList(b *testing.B) {
	body := encodeProtobuf(b, realisticPods(500))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadProtobufList(bytes.NewReader(body), 32<<20, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// realisticPods are pods of some 6 KB with the short strings and the nesting of
// real ones.
func realisticPods(n int) *corev1.PodList {
	list := podList(n, 0)
	for i := range list.Items {
		pod := &list.Items[i]
		pod.Annotations = map[string]string{}
		pod.Labels = map[string]string{"app": "web", "pod-template-hash": "7c5ddbdf54", "tier": "frontend"}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}`),
		}}
		container := corev1.Container{
			Name: "c", Image: "registry.example.com/team/image:v1.2.3", Command: []string{"/bin/server", "--listen", ":8080"},
			Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 8080, Protocol: "TCP"}},
		}
		for j := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: "some value"})
		}
		pod.Spec.Containers = []corev1.Container{container, container, container}
		for j := range 5 {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "True", Reason: fmt.Sprint(j)})
		}
	}
	return list
}
