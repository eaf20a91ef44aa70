package cache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/object"
)

// The body of a get is written like that of a list with one item; only what
// stands around the object differs, and its depth when it is indented.

// singleFrame is what the body of a get has before and after the object.
func (f *form) singleFrame(o *object.Object) (head, tail []byte) {
	switch f.kind {
	case formTable:
		head, tail = f.tableFrame(&metav1.ListMeta{ResourceVersion: formatRV(o.RV)}, 1)
		if f.rep.Pretty {
			return prettyFrame(head, tail, 1)
		}
		return head, tail
	case formProtobuf:
		head = object.AppendProtobufObjectHead(nil, f.res.GroupVersion().String(), f.res.Kind, len(o.Raw))
		return head, []byte(object.ProtobufTail)
	case formPartialProtobuf:
		size := len(f.metadataOf(0, o))
		head = object.AppendProtobufObjectHead(nil, object.PartialAPIVersion, object.PartialKind, partialProtobufSize(size))
		return appendPartialProtobufHead(head, size), []byte(object.ProtobufTail)
	case formJSON, formPartial, formPartialTyped:
	}
	if f.rep.Pretty {
		return nil, nil
	}
	return nil, []byte("\n")
}

// singleSize is the size of the object between the parts of singleFrame.
func (f *form) singleSize(o *object.Object) (n int, exact bool) {
	switch f.kind {
	case formJSON:
		return len(o.Raw), !f.rep.Pretty
	case formProtobuf:
		return len(o.Raw), true
	case formPartialProtobuf:
		return len(f.metadataOf(0, o)), true
	case formPartial, formPartialTyped, formTable:
	}
	return f.itemSize(0, o)
}

// verbatim says whether a get's body holds the object's bytes as they are.
func (f *form) verbatim() bool {
	return f.kind == formProtobuf || f.kind == formJSON && !f.rep.Pretty
}

// writeSingle writes the object between the parts of singleFrame.
func (f *form) writeSingle(w *chunks, o *object.Object) {
	switch f.kind {
	case formJSON, formProtobuf:
		w.write(o.Raw)
	case formPartialProtobuf:
		w.write(f.metadataOf(0, o))
	case formTable:
		if f.rep.Pretty {
			writePretty(w, prettyItemPrefix, func(w *chunks) { f.writeCompact(w, 0, o) })
			return
		}
		f.writeCompact(w, 0, o)
	case formPartial, formPartialTyped:
		f.writeCompact(w, 0, o)
	}
}
