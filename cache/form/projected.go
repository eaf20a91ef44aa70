package form

import (
	"bytes"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// projected renders selected paths of objects in JSON. Items are projected while they are written,
// because pages are small.
type projected struct {
	Form
	left *json.Projection
}

// Projected returns f, a form of whole objects in JSON or CBOR, reduced to the paths in left.
func Projected(f Form, left *json.Projection) Form {
	switch t := f.(type) {
	case *redacted:
		t.Form = Projected(t.Form, left)
		return t
	case *transcoded:
		t.left = left
		return t
	}
	return &projected{f, left}
}

func (f *projected) itemSize(int, *object.Object) (n int, exact bool) { return len("{}"), false }

func (f *projected) item(w *chunks.Writer, _ int, o *object.Object) {
	raw := f.common().whole(o)
	w.Append(len(raw), func(b []byte) []byte { return f.left.Append(b, raw) })
}

// whole returns the bytes of an object stored as JSON.
func (b *base) whole(o *object.Object) []byte {
	if b.rep.DropManagedFields {
		return encoding.Drop(json.Codec{}, o.Encoded).Raw
	}
	return o.Raw
}

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
