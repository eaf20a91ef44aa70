package form

import (
	"bytes"
	"fmt"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// Project reduces the items of f, a form of whole objects in JSON or CBOR, to fields. Items are
// projected while they are written, because pages are small.
func Project(f Form, fields *json.Projection) { f.common().fields = fields }

// KeepOrder keeps the rows of a Table in the order of its objects, even if those of the resource
// are usually sorted.
func KeepOrder(f Form) { f.common().inOrder = true }

// writeFields writes the fields of an object.
func (b *base) writeFields(w *chunks.Writer, o *object.Object) {
	whole := b.whole(o)
	w.Append(len(whole), func(buf []byte) []byte { return b.fields.Append(buf, whole) })
}

// whole returns the bytes of an object stored as JSON.
func (b *base) whole(o *object.Object) []byte {
	if b.rep.DropManagedFields {
		return encoding.Drop(json.Codec{}, o.Encoded).Raw
	}
	return o.Raw
}

// withCounts inserts counts into the metadata of a JSON list, which has a resourceVersion, too. The
// metadata is part of the head, or of the tail if the list's keys are sorted.
func withCounts(head, tail, counts []byte) (newHead, newTail []byte) {
	const metadata = `"metadata":{`
	insert := func(text []byte) []byte {
		return bytes.Replace(text, []byte(metadata), fmt.Appendf(nil, `%s"kubeweir":%s,`, metadata, counts), 1)
	}
	if bytes.Contains(head, []byte(metadata)) {
		return insert(head), tail
	}
	return head, insert(tail)
}
