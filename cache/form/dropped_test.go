package form

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// piecesTo accepts pieces, as a connection does.
type piecesTo struct{ io.Writer }

func (piecesTo) WritePieces(list [][]byte) (n int, err error) {
	for _, piece := range list {
		n += len(piece)
	}
	return n, nil
}

// TestDroppedItemsAllocateNothing checks that items without managedFields allocate no more than
// whole ones.
func TestDroppedItemsAllocateNothing(t *testing.T) {
	for _, enc := range encodingtest.Encodings {
		o := decode(t, enc, encodingtest.Pod(1))
		for _, transform := range []api.Transform{api.NoTransform, api.PartialMetadata} {
			f := (&Renderer{}).For(&Resource{APIVersion: "v1", Kind: "Pod"}, enc, api.Representation{Encoding: enc, Transform: transform, DropManagedFields: true})
			w := chunks.To(piecesTo{io.Discard}, make([]byte, 0, chunks.Size))
			write := func() {
				for i := range 100 {
					f.itemSize(i, o)
					f.item(&w, i, o)
				}
				w.Flush()
			}
			if n := testing.AllocsPerRun(10, write); n != 0 {
				t.Errorf("%v %v: %v allocations for 100 items", enc, transform, n)
			}
			if n, exact := f.itemSize(0, o); w.Written%int64(n) != 0 || !exact {
				t.Errorf("%v %v: %d bytes written, of items of %d", enc, transform, w.Written, n)
			}
		}
	}
}

// TestDroppedCBOR checks that the transcoded object lacks managedFields.
func TestDroppedCBOR(t *testing.T) {
	with, without := encodingtest.Pod(1), encodingtest.Pod(1)
	without.ManagedFields = nil
	for _, transform := range []api.Transform{api.NoTransform, api.PartialMetadata} {
		rep := api.Representation{Encoding: api.CBOR, Transform: transform}
		get := func(pod *corev1.Pod, drop bool) []byte {
			r, err := NewRenderer(Options{DerivedBytes: 1 << 20, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			rep.DropManagedFields = drop
			resp, err := r.Get(r.For(&Resource{APIVersion: "v1", Kind: "Pod"}, api.JSON, rep), decode(t, api.JSON, pod), Client{})
			if err != nil {
				t.Fatal(err)
			}
			body := bytes.NewBuffer(resp.Body)
			if resp.BodyTo != nil {
				if _, err := resp.BodyTo.WriteTo(body); err != nil {
					t.Fatal(err)
				}
			}
			return body.Bytes()
		}
		encodingtest.Same(t, "dropped", get(with, true), get(without, false))
		if bytes.Equal(get(with, false), get(without, false)) {
			t.Error("nothing to drop")
		}
	}
}

// BenchmarkItems writes the items of a list with and without their managedFields.
func BenchmarkItems(b *testing.B) {
	for _, drop := range []bool{false, true} {
		for _, enc := range encodingtest.Encodings {
			b.Run(fmt.Sprintf("%v dropped=%v", enc, drop), func(b *testing.B) {
				o, err := podSchema.Decode(enc, encodingtest.Raw(b, enc, encodingtest.Pod(1)))
				if err != nil {
					b.Fatal(err)
				}
				f := (&Renderer{}).For(&Resource{APIVersion: "v1", Kind: "Pod"}, enc, api.Representation{Encoding: enc, DropManagedFields: drop})
				w := chunks.To(piecesTo{io.Discard}, make([]byte, 0, chunks.Size))
				b.ReportAllocs()
				for b.Loop() {
					f.itemSize(0, o)
					f.item(&w, 0, o)
				}
				w.Flush()
				b.ReportMetric(float64(w.Written)/float64(b.N), "bytes/item")
			})
		}
	}
}
