package object_test

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
)

// TestAtRV changes the version in the bytes, including cases in which its length changes the length
// of the metadata and of that length itself.
func TestAtRV(t *testing.T) {
	s := object.SchemaFor(podResource)
	for _, enc := range encodingtest.Encodings {
		for _, padding := range []int{0, 40, 60, 80} {
			for _, rv := range []string{"1", "99999", "18446744073709551615"} {
				pod := encodingtest.Pod(4)
				if padding > 0 { // metadata of about 128 bytes, where its length grows by a byte
					pod.ObjectMeta = metav1.ObjectMeta{Name: strings.Repeat("n", padding), Namespace: "ns", UID: "u", ResourceVersion: "12345"}
				}
				o := decode(t, s, enc, encodingtest.Raw(t, enc, pod))
				before := bytes.Clone(o.Raw)
				pod.ResourceVersion = rv
				want := decode(t, s, enc, encodingtest.Raw(t, enc, pod))
				got, err := o.AtRV(enc, want.RV)
				if err != nil {
					t.Fatal(err)
				}
				encodingtest.Same(t, enc.String(), got.Raw, want.Raw)
				encodingtest.Same(t, enc.String()+" metadata", got.Metadata(), want.Metadata())
				encodingtest.Same(t, "original", o.Raw, before)
				if got.RV != want.RV || got.ID == o.ID || got.Key != o.Key {
					t.Errorf("got %+v", got)
				}
				if got.ListOffset != want.ListOffset {
					t.Errorf("list offset %d, want %d", got.ListOffset, want.ListOffset)
				}
			}
		}
		o := decode(t, s, enc, encodingtest.Raw(t, enc, encodingtest.Pod(4)))
		if got, err := o.AtRV(enc, o.RV); err != nil || got != o {
			t.Errorf("AtRV of its own version: %v, %v", got, err)
		}
	}
}
