package cbor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
)

var secretKind = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}

func secret(i int) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("secret-", i), Labels: map[string]string{}},
		Data:       map[string][]byte{"token": {0, 1, 255}, "empty": {}, "nil": nil},
	}
	for l := range i {
		s.Labels[fmt.Sprint("label-", l)] = "value"
	}
	return s
}

// transcoded returns the CBOR of an object, without SelfDescribed.
func transcoded(t testing.TB, obj any, shape cbor.Shape) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cbor.Append(nil, text, shape)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func encoded(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	scheme := builtInTypes(t)
	var b bytes.Buffer
	if err := serializer.NewSerializer(scheme, scheme).Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestList: a list of items that were transcoded one by one equals the list that apimachinery
// encodes.
func TestList(t *testing.T) {
	for _, n := range []int{0, 1, 23, 24, 300} {
		list := &corev1.SecretList{
			TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, Items: []corev1.Secret{},
			ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "next", RemainingItemCount: new(int64)},
		}
		got := cbor.AppendListHead(nil, "v1", "SecretList", transcoded(t, list.ListMeta, cbor.Untyped), n)
		for i := range n {
			s := secret(i)
			object := transcoded(t, s, cbor.ShapeOf(secretKind))
			offset, err := cbor.AfterType(object)
			if err != nil {
				t.Fatal(err)
			}
			before := len(got)
			got = append(cbor.AppendItemHead(got, object), object[offset:]...)
			if size := cbor.ItemSize(object, offset); len(got)-before != size {
				t.Errorf("item %d: %d bytes, ItemSize says %d", i, len(got)-before, size)
			}
			s.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, *s)
		}
		if want := encoded(t, list); !bytes.Equal(cbortest.Sorted(t, got), cbortest.Sorted(t, want)) {
			t.Errorf("%d items:\n got %.1000s\nwant %.1000s", n, cbortest.Diagnose(got), cbortest.Diagnose(want))
		}
	}
}

// TestCustomList: items of custom resources are encoded in a list as on their own.
func TestCustomList(t *testing.T) {
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": "12", "continue": ""},
	}}
	got := cbor.AppendListHead(nil, "example.com/v1", "WidgetList", transcoded(t, list.Object["metadata"], cbor.Untyped), 2)
	for i := range 2 {
		item := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": fmt.Sprint(i)}, "spec": map[string]any{"n": int64(i), "f": 0.5}}
		got = append(got, transcoded(t, item, cbor.Untyped)...)
		list.Items = append(list.Items, unstructured.Unstructured{Object: item})
	}
	if want := encoded(t, list); !bytes.Equal(cbortest.Sorted(t, got), cbortest.Sorted(t, want)) {
		t.Errorf("got %s\nwant %s", cbortest.Diagnose(got), cbortest.Diagnose(want))
	}
}

// TestFrames: watch events equal those of apimachinery's stream encoder.
func TestFrames(t *testing.T) {
	for _, event := range []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"} {
		got := cbor.AppendFrameHead(nil, event)
		got = append(got, transcoded(t, secret(1), cbor.ShapeOf(secretKind))...)
		want := encoded(t, &metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: encoded(t, secret(1))}})
		if !bytes.Equal(cbortest.Sorted(t, got), cbortest.Sorted(t, want)) {
			t.Errorf("got %s\nwant %s", cbortest.Diagnose(got), cbortest.Diagnose(want))
		}
	}
}

func TestAfterTypeOfOthers(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `1`, `"kind"`, `{"kind":"A"}`, `{"apiVersion":"v1","kind":"A"}`, `{"kind":1,"apiVersion":"v1"}`, `{"kind":"A","apiVersion":null}`,
		`{"a":1,"kind":"A","apiVersion":"v1"}`,
	} {
		object, err := cbor.Append(nil, []byte(text), cbor.Untyped)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(object) + 1 {
			if offset, err := cbor.AfterType(object[:i]); err == nil {
				t.Errorf("%s, %d bytes of %d: %d", text, i, len(object), offset)
			}
		}
	}
}
