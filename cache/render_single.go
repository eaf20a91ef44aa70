package cache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
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
		head = appendProtobufEnvelope(nil, f.res.GroupVersion().String(), f.res.Kind, len(o.Raw))
		return head, []byte(object.ProtobufTail)
	case formPartialProtobuf:
		size := len(f.metadataOf(0, o))
		head = appendProtobufEnvelope(nil, object.PartialAPIVersion, object.PartialKind, partialProtobufSize(size))
		return appendPartialProtobufHead(head, size), []byte(object.ProtobufTail)
	case formJSON, formPartial, formPartialTyped:
	}
	if f.rep.Pretty {
		return nil, nil
	}
	return nil, []byte("\n")
}

// singleSize is the size of the object between the parts of singleFrame.
func (f *form) singleSize(i int, o *object.Object) (n int, exact bool) {
	switch f.kind {
	case formJSON:
		return len(o.Raw), !f.rep.Pretty
	case formProtobuf:
		return len(o.Raw), true
	case formPartialProtobuf:
		return len(f.metadataOf(i, o)), true
	case formPartial, formPartialTyped, formTable:
	}
	return f.size(i, o)
}

// writeSingle writes the object between the parts of singleFrame.
func (f *form) writeSingle(w *chunks, i int, o *object.Object) {
	switch {
	case f.kind == formTable:
		f.write(w, i, o)
	case f.rep.Encoding == api.Protobuf && f.kind == formProtobuf:
		w.write(o.Raw)
	case f.rep.Encoding == api.Protobuf:
		w.write(f.metadataOf(i, o))
	case f.rep.Pretty:
		compact := chunks{}
		f.writeSingleCompact(&compact, i, o)
		w.append(2*len(compact.buf), func(b []byte) []byte { return appendIndented(b, "", compact.buf) })
	default:
		f.writeSingleCompact(w, i, o)
	}
}

func (f *form) writeSingleCompact(w *chunks, i int, o *object.Object) {
	if f.kind == formJSON {
		w.write(o.Raw)
		return
	}
	f.writeCompact(w, i, o)
}
