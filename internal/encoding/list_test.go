package encoding_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

func none([]byte) error { return nil }

func collect(items *[][]byte) func([]byte) error {
	return func(item []byte) error {
		*items = append(*items, item)
		return nil
	}
}

func TestReadList(t *testing.T) {
	list := encodingtest.PodList(20, 900)
	list.ShardInfo = &metav1.ShardInfo{Selector: "a part"}
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		for name, r := range encodingtest.Readers(encodingtest.Body(t, enc, list)) {
			t.Run(name, func(t *testing.T) {
				var items [][]byte
				meta, err := codec.ReadList(r, typed(testLimit), collect(&items))
				if err != nil {
					t.Fatal(err)
				}
				if want := (encoding.ListMeta{Kind: "PodList", APIVersion: "v1", ResourceVersion: "4711", Continue: "abc", Shard: "a part"}); meta != want {
					t.Errorf("meta = %+v, want %+v", meta, want)
				}
				if len(items) != len(list.Items) {
					t.Fatalf("%d items, want %d", len(items), len(list.Items))
				}
				for i := range items {
					pod := list.Items[i].DeepCopy()
					pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
					encodingtest.Same(t, "item as in a watch", items[i], encodingtest.Raw(t, enc, pod))
				}
			})
		}
	})
}

// TestTruncatedLists cuts the bodies at every byte: none may be accepted as complete.
func TestTruncatedLists(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		body := encodingtest.Body(t, enc, encodingtest.PodList(2, 100))
		// The end of the contents may be missing: a newline, or two empty strings.
		end := len(bytes.TrimSuffix(bytes.TrimSuffix(body, []byte("\n")), []byte(protobuf.Tail)))
		for i := range end {
			if _, err := codec.ReadList(bytes.NewReader(body[:i]), typed(testLimit), none); !errors.Is(err, io.ErrUnexpectedEOF) && (err == nil || enc == api.JSON) {
				t.Fatalf("cut at %d of %d: %v", i, len(body), err)
			}
		}
	})
}

func TestListLimits(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		one := encodingtest.Body(t, enc, encodingtest.PodList(1, 100_000))
		if _, err := codec.ReadList(bytes.NewReader(one), typed(10_000), none); !errors.Is(err, encoding.ErrTooLarge) {
			t.Errorf("an item above the limit: %v", err)
		}
		// Many small items are accepted, however long the list.
		many := encodingtest.Body(t, enc, encodingtest.PodList(200, 1000))
		if _, err := codec.ReadList(bytes.NewReader(many), typed(10_000), none); err != nil {
			t.Error(err)
		}
	})
}

func TestVisitErrorIsReturnedUnchanged(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		body := encodingtest.Body(t, enc, encodingtest.PodList(3, 10))
		if _, err := codec.ReadList(bytes.NewReader(body), typed(testLimit), func([]byte) error { return io.EOF }); err != io.EOF {
			t.Error(err)
		}
	})
}

// TestItemsAreOwned overwrites each item: no other may change.
func TestItemsAreOwned(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		body := encodingtest.Body(t, enc, encodingtest.PodList(50, 200))
		read := func(visit func([]byte) error) {
			if _, err := codec.ReadList(bytes.NewReader(body), typed(testLimit), visit); err != nil {
				t.Fatal(err)
			}
		}
		var sums []string
		read(func(item []byte) error {
			sums = append(sums, string(item))
			for i := range item {
				item[i] = 'x'
			}
			return nil
		})
		i := 0
		read(func(item []byte) error {
			if string(item) != sums[i] {
				t.Errorf("item %d has changed", i)
			}
			if cap(item) > len(item)+len(item)/4+64 {
				t.Errorf("item %d of %d bytes holds %d", i, len(item), cap(item))
			}
			i++
			return nil
		})
	})
}

func BenchmarkReadList(b *testing.B) {
	for enc, codec := range codecs {
		b.Run(enc.String(), func(b *testing.B) {
			body := encodingtest.Body(b, enc, encodingtest.RealisticPods(500))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.ReadList(bytes.NewReader(body), typed(32<<20), none); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
