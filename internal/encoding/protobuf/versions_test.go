package protobuf

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

func metadataList(n int) []byte {
	remaining := int64(7)
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "abc", RemainingItemCount: &remaining}}
	for _, pod := range encodingtest.PodList(n, 300).Items {
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

func TestReadVersions(t *testing.T) {
	var want []string
	for _, pod := range encodingtest.PodList(20, 300).Items {
		want = append(want, fmt.Sprintf("%s/%s@%s", pod.Namespace, pod.Name, pod.ResourceVersion))
	}
	for name, r := range encodingtest.Readers(metadataList(20)) {
		t.Run(name, func(t *testing.T) {
			var got []string
			meta, err := ReadVersions(r, testLimit, func(ref Reference) error {
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

func TestReadVersionsRejects(t *testing.T) {
	none := func(Reference) error { return nil }
	body := metadataList(3)
	for n := range len(body) - len(Tail) { // two empty fields, which may be missing
		// A truncated body is never accepted as a shorter list.
		if _, err := ReadVersions(&encodingtest.Portions{B: body[:n], N: 100}, testLimit, none); err == nil {
			t.Fatalf("%d of %d bytes are taken for a list", n, len(body))
		}
	}
	if _, err := ReadVersions(&encodingtest.Portions{B: body, N: 100}, 10, none); !errors.Is(err, encoding.ErrTooLarge) {
		t.Errorf("above the limit: %v", err)
	}
	enough := errors.New("enough")
	if _, err := ReadVersions(&encodingtest.Portions{B: body, N: 100}, testLimit, func(Reference) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func FuzzReadVersions(f *testing.F) {
	f.Add(metadataList(2), uint8(3))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		n := 0
		_, err := ReadVersions(&encodingtest.Portions{B: body, N: int(portion) + 1}, 4096, func(Reference) error { n++; return nil })
		if err != nil {
			return
		}
		e, err := Open(body)
		if err != nil {
			return // the whole envelope repeats a field; the streaming reader does not
		}
		var want metav1.PartialObjectMetadataList
		if want.Unmarshal(e.Raw) == nil && len(want.Items) != n {
			t.Fatalf("%d references, want %d", n, len(want.Items))
		}
	})
}
