package form

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// projected renders selected paths of objects in JSON. Items are projected while they are written,
// because pages are small.
type projected struct {
	Form
	left *json.Projection
}

// Projected returns f, a form of whole objects in JSON, reduced to the paths in left.
func Projected(f Form, left *json.Projection) Form { return &projected{f, left} }

func (f *projected) itemSize(int, *object.Object) (n int, exact bool) { return len("{}"), false }

func (f *projected) item(w *chunks, _ int, o *object.Object) {
	raw := f.whole(o)
	w.append(len(raw), func(b []byte) []byte { return f.left.Append(b, raw) })
}

// whole returns the bytes of an object.
func (f *projected) whole(o *object.Object) []byte {
	if f.common().rep.DropManagedFields {
		return encoding.Drop(json.Codec{}, o.Encoded).Raw
	}
	return o.Raw
}

// transcodedPart renders selected paths of objects in CBOR. The paths are projected from the stored
// JSON and then transcoded.
type transcodedPart struct {
	Form
	from projected
	// values are the items of a response.
	values [][]byte
}

// TranscodedPart returns f, a form of whole objects in CBOR, reduced to the paths in left of their
// JSON, which from renders.
func TranscodedPart(f, from Form, left *json.Projection) Form {
	return &transcodedPart{Form: f, from: projected{from, left}}
}

func (f *transcodedPart) prepare(p place, objs Objects) (Objects, error) {
	prepared, err := f.from.prepare(p, objs)
	if err != nil {
		return nil, err
	}
	shape := cbor.Untyped
	if res := f.common().res; !res.Custom {
		shape = cbor.ShapeOf(schema.FromAPIVersionAndKind(res.APIVersion, res.Kind))
	}
	var text []byte
	prepared.Each(func(_ int, o *object.Object) bool {
		var value []byte
		text = f.from.left.Append(text[:0], f.from.whole(o))
		if value, err = cbor.Append(nil, text, shape); err != nil {
			err = fmt.Errorf("transcoding a part of %s: %w", o.Key, err)
			return false
		}
		f.values = append(f.values, value)
		return true
	})
	return prepared, err
}

func (f *transcodedPart) itemSize(i int, _ *object.Object) (n int, exact bool) {
	return len(f.values[i]), true
}

func (f *transcodedPart) item(w *chunks, i int, _ *object.Object) { w.refer(f.values[i]) }

// withCounts inserts counts into the metadata of a JSON list. The metadata is part of the head, or
// of the tail if the list's keys are sorted.
func withCounts(head, tail, counts []byte) (newHead, newTail []byte) {
	metadata := []byte(`"metadata":{`)
	insert := func(text []byte) []byte {
		before, after, found := bytes.Cut(text, metadata)
		if !found {
			return text
		}
		member := append([]byte(`"kubeweir":`), counts...)
		if after[0] != '}' {
			member = append(member, ',')
		}
		return bytes.Join([][]byte{before, metadata, member, after}, nil)
	}
	if bytes.Contains(head, metadata) {
		return insert(head), tail
	}
	return head, insert(tail)
}
