package form

import (
	"bytes"

	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// projected is what a projection leaves of objects in a list in JSON. It is made as it is
// written: a page has few of them.
type projected struct {
	Form
	left *json.Projection
}

// Projected is f, a form of whole objects in JSON, with what left leaves of them.
func Projected(f Form, left *json.Projection) Form { return &projected{f, left} }

func (f *projected) itemSize(int, *object.Object) (n int, exact bool) { return len("{}"), false }

func (f *projected) item(w *chunks, _ int, o *object.Object) {
	raw := o.Raw
	if f.common().rep.DropManagedFields {
		raw = encoding.Drop(json.Codec{}, o.Encoded).Raw
	}
	w.append(len(raw), func(b []byte) []byte { return f.left.Append(b, raw) })
}

// withCounts puts counts into the metadata of a list in JSON, which stands in its head, or
// in its tail where its keys are sorted.
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
