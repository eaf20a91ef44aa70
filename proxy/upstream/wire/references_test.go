package wire

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func metadataList(n int) []byte {
	remaining := int64(7)
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "abc", RemainingItemCount: &remaining}}
	for _, pod := range podList(n, 300).Items {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
	}
	raw, err := list.Marshal()
	if err != nil {
		panic(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}
	body, err := envelope.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte(magic), body...)
}

func TestReadReferences(t *testing.T) {
	var want []string
	for _, pod := range podList(20, 300).Items {
		want = append(want, fmt.Sprintf("%s/%s@%s", pod.Namespace, pod.Name, pod.ResourceVersion))
	}
	for name, r := range readers(metadataList(20)) {
		t.Run(name, func(t *testing.T) {
			var got []string
			meta, err := ReadReferences(r, testLimit, func(ref Reference) error {
				got = append(got, fmt.Sprintf("%s/%s@%s", ref.Namespace, ref.Name, ref.ResourceVersion))
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
			if meta.Kind != "PartialObjectMetadataList" || meta.ResourceVersion != "4711" || meta.Continue != "abc" || meta.RemainingItemCount == nil || *meta.RemainingItemCount != 7 {
				t.Errorf("meta = %+v", meta)
			}
		})
	}
}

func TestReadReferencesRefuses(t *testing.T) {
	none := func(Reference) error { return nil }
	body := metadataList(3)
	const trailer = len("\x1a\x00\x22\x00") // two empty fields of the envelope, which may be missing
	for n := range len(body) - trailer {
		// A body that breaks off is never a shorter list.
		if _, err := ReadReferences(&portions{body[:n], 100}, testLimit, none); err == nil {
			t.Fatalf("%d of %d bytes are taken for a list", n, len(body))
		}
	}
	if _, err := ReadReferences(&portions{body, 100}, 10, none); !errors.Is(err, ErrTooLarge) {
		t.Errorf("above the limit: %v", err)
	}
	enough := errors.New("enough")
	if _, err := ReadReferences(&portions{body, 100}, testLimit, func(Reference) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func FuzzReadReferences(f *testing.F) {
	f.Add(metadataList(2), uint8(3))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		n := 0
		_, err := ReadReferences(&portions{body, int(portion) + 1}, 4096, func(Reference) error { n++; return nil })
		if err != nil {
			return
		}
		_, message, err := openEnvelope(body)
		if err != nil {
			return // the whole envelope repeats a field; the streaming reader does not
		}
		var want metav1.PartialObjectMetadataList
		if want.Unmarshal(message) == nil && len(want.Items) != n {
			t.Fatalf("%d references, want %d", n, len(want.Items))
		}
	})
}
