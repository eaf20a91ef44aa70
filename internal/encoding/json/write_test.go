package json

import (
	"bytes"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// TestUntypedList compares the list of a custom resource with apimachinery's.
func TestUntypedList(t *testing.T) {
	raw := []byte(`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":"n","resourceVersion":"1"}}`)
	s := encoding.Scan{Encoded: encoding.Encoded{Raw: raw}}
	if err := (Codec{}).Scan(&s); err != nil {
		t.Fatal(err)
	}
	remaining := int64(12)
	for _, meta := range []metav1.ListMeta{{ResourceVersion: "3"}, {ResourceVersion: "3", Continue: "abc"}, {ResourceVersion: "3", Continue: "abc", RemainingItemCount: &remaining}} {
		// continue is present even if it is empty: the registry of custom resources sets it.
		list := &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": "ex.com/v1", "kind": "WidgetList", "metadata": map[string]any{"continue": meta.Continue, "resourceVersion": meta.ResourceVersion},
		}}
		if meta.RemainingItemCount != nil {
			list.SetRemainingItemCount(meta.RemainingItemCount)
		}
		var widget unstructured.Unstructured
		if err := widget.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		list.Items = append(list.Items, widget)
		want, err := list.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		head, tail := Codec{}.List(encoding.ListType{APIVersion: "ex.com/v1", Kind: "WidgetList", Untyped: true}, &meta, 1, len(raw))
		open, rest := Item(s.Raw, s.ListOffset)
		encodingtest.Same(t, "list", bytes.Join([][]byte{head, []byte(open), rest, tail}, nil), want)
	}
}

// FuzzSkip: skip skips exactly what encoding/json accepts as a value.
func FuzzSkip(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+7,true,false,null,{"b":"\ud83d\ude00"}]}`, ` "x" `, `[`, `01`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		end, err := skip(raw)
		if (err == nil && len(bytes.TrimRight(raw[end:], " \t\r\n")) == 0) != json.Valid(raw) {
			t.Fatalf("%q: %d, %v", raw, end, err)
		}
	})
}
