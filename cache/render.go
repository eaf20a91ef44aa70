package cache

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// form renders the objects of one response in one representation. What has to be
// derived from objects first (rows of tables, metadata of custom resources) is
// collected before the response begins, because a response that has begun cannot
// become a forwarded one. A form serves one response.
type form struct {
	res  *Resource
	rep  api.Representation
	kind formKind
	// single is set for the body of a get.
	single bool
	// initial is set for the initial events of a watch: the items are frames.
	initial bool
	// moment is the time at which a table reads as it is written.
	moment time.Time
	// rows and metadata are, where the kind needs them, those of the objects in
	// the order of the selection.
	rows     []*table.Row
	metadata [][]byte
}

// formKind is how the items of a response are made.
type formKind uint8

const (
	formJSON            formKind = iota // the object's bytes
	formPartial                         // JSON, metadata as it stands in the object
	formPartialTyped                    // JSON, metadata derived
	formTable                           // a row
	formProtobuf                        // the object's bytes
	formPartialProtobuf                 // metadata as it stands, or derived
)

// newForm prepares to render objs; p is their place. The error is ErrForward
// with a reason.
func (r *Reader) newForm(c readable, rep api.Representation, objs objectSet, p *place) (*form, error) {
	f := &form{res: c.Resource(), rep: rep}
	derived := !f.res.ownMetadata()
	var err error
	switch {
	case rep.Transform == api.Table:
		f.kind = formTable
		f.rows, err = r.rows(p, objs)
		if err == nil && derived && rep.IncludeObject == api.IncludeMetadata {
			f.metadata, err = r.metadata(p, api.JSON, objs)
		}
		if err == nil {
			f.moment, err = r.moment(p, f.rows)
		}
	case rep.Transform == api.PartialMetadata && rep.Encoding == api.Protobuf:
		f.kind = formPartialProtobuf
		if derived {
			f.metadata, err = r.metadata(p, api.Protobuf, objs)
		}
	case rep.Transform == api.PartialMetadata && derived:
		f.kind = formPartialTyped
		f.metadata, err = r.metadata(p, api.JSON, objs)
	case rep.Transform == api.PartialMetadata:
		f.kind = formPartial
	case rep.Encoding == api.Protobuf:
		f.kind = formProtobuf
	default:
		f.kind = formJSON
	}
	if err != nil {
		return nil, forward(reason.Unrenderable, fmt.Errorf("rendering %s: %w", f.res.Resource, err))
	}
	return f, nil
}

// objectSet is what forms are prepared for.
type objectSet interface {
	len() int
	each(visit func(i int, o *object.Object))
}

// oneObject is the objectSet of a get.
type oneObject struct{ o *object.Object }

func (oneObject) len() int                                   { return 1 }
func (s oneObject) each(visit func(i int, o *object.Object)) { visit(0, s.o) }

// separator is what stands between two items.
func (f *form) separator() string {
	switch {
	case f.rep.Encoding == api.Protobuf, f.initial:
		return ""
	case f.rep.Pretty:
		return ",\n" + prettyItemPrefix
	}
	return ","
}

const partialHead = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`

// metadataOf is the metadata of object i as this form needs it.
func (f *form) metadataOf(i int, o *object.Object) []byte {
	if f.metadata != nil {
		return f.metadata[i]
	}
	return o.Metadata()
}

// size is the exact length of item i, or what is known of it at least, with
// exact unset.
func (f *form) size(i int, o *object.Object) (n int, exact bool) {
	if f.single {
		return f.singleSize(o)
	}
	return f.itemSize(i, o)
}

func (f *form) itemSize(i int, o *object.Object) (n int, exact bool) {
	exact = !f.rep.Pretty
	switch f.kind {
	case formJSON:
		return object.JSONListItemSize(o), exact
	case formPartial, formPartialTyped:
		return len(partialHead) + len(f.metadataOf(i, o)) + 1, exact
	case formProtobuf:
		return object.ProtobufListItemSize(len(o.Raw)), true
	case formPartialProtobuf:
		return object.ProtobufListItemSize(partialProtobufSize(len(f.metadataOf(i, o)))), true
	}
	n = len(`{"cells":[],"object":null}`) + len(o.Name)
	switch f.rep.IncludeObject {
	case api.IncludeMetadata:
		n += len(partialHead) + len(f.metadataOf(i, o))
	case api.IncludeObjectFull:
		n += len(o.Raw)
	}
	return n, false
}

// write writes item i without its separator.
func (f *form) write(w *chunks, i int, o *object.Object) {
	switch {
	case f.initial:
		f.writeInitial(w, i, o)
	case f.single && f.rep.Pretty && f.kind != formTable:
		writePretty(w, "", func(w *chunks) { f.writeSingle(w, o) })
	case f.single:
		f.writeSingle(w, o)
	case f.rep.Pretty:
		writePretty(w, prettyItemPrefix, func(w *chunks) { f.writeCompact(w, i, o) })
	default:
		f.writeCompact(w, i, o)
	}
}

func (f *form) writeCompact(w *chunks, i int, o *object.Object) {
	switch f.kind {
	case formJSON:
		if o.ListOffset == 0 {
			w.refer(o.Raw)
			return
		}
		w.writeString("{")
		w.refer(o.Raw[o.ListOffset:])
	case formPartial, formPartialTyped:
		w.writeString(partialHead)
		w.refer(f.metadataOf(i, o))
		w.writeString("}")
	case formProtobuf:
		w.append(protobufItemHead, func(b []byte) []byte { return appendProtobufItemHead(b, len(o.Raw)) })
		w.refer(o.Raw)
	case formPartialProtobuf:
		metadata := f.metadataOf(i, o)
		w.append(2*protobufItemHead, func(b []byte) []byte {
			b = appendProtobufItemHead(b, partialProtobufSize(len(metadata)))
			return appendPartialProtobufHead(b, len(metadata))
		})
		w.refer(metadata)
	case formTable:
		size, _ := f.size(i, o)
		w.append(size+f.rows[i].Size(), func(b []byte) []byte { return f.appendRow(b, i, o) })
	}
}

func (f *form) appendRow(b []byte, i int, o *object.Object) []byte {
	b = append(b, '{')
	b = f.rows[i].Append(b, f.moment)
	b = append(b, `,"object":`...)
	switch f.rep.IncludeObject {
	case api.IncludeMetadata:
		b = append(b, partialHead...)
		b = append(b, f.metadataOf(i, o)...)
		b = append(b, '}')
	case api.IncludeObjectFull:
		b = append(b, o.Raw...)
	default:
		b = append(b, "null"...)
	}
	return append(b, '}')
}

// frame is what a list body has before and after its items. itemsSize is needed
// for protobuf only: the sum of the sizes.
func (f *form) frame(c readable, meta *metav1.ListMeta, n, itemsSize int) (head, tail []byte) {
	switch {
	case f.rep.Encoding == api.Protobuf:
		return f.protobufFrame(c, meta, itemsSize)
	case f.kind == formTable:
		head, tail = f.tableFrame(meta, n)
	case f.kind == formJSON && f.res.Custom:
		head, tail = customFrame(c, meta)
	case f.kind == formJSON:
		kind, apiVersion := c.ListKind()
		head, tail = typedFrame(kind, apiVersion, meta)
	default:
		head, tail = typedFrame(object.PartialListKind, object.PartialAPIVersion, meta)
		if n == 0 {
			// Upstream never makes the slice when there is nothing to put in.
			head = append(head[:len(head)-1], "null"...)
			tail = tail[1:]
		}
	}
	if f.rep.Pretty {
		return prettyFrame(head, tail, n)
	}
	return head, tail
}

func (f *form) protobufFrame(c readable, meta *metav1.ListMeta, itemsSize int) (head, tail []byte) {
	kind, apiVersion := c.ListKind()
	if f.kind == formPartialProtobuf {
		kind, apiVersion = object.PartialListKind, object.PartialAPIVersion
	}
	listMeta, err := meta.Marshal()
	if err != nil {
		panic(err) // three strings and a number always marshal
	}
	return object.AppendProtobufListHead(nil, apiVersion, kind, listMeta, itemsSize), []byte(object.ProtobufTail)
}

func (f *form) tableFrame(meta *metav1.ListMeta, n int) (head, tail []byte) {
	w := table.NewWriter(f.res.Printer, f.moment)
	head = w.AppendHead(nil, meta)
	if n == 0 {
		return head, w.AppendTail(nil)
	}
	return append(head, '['), []byte("]}\n")
}

// typedFrame is the frame of a list that has a Go type upstream.
func typedFrame(kind, apiVersion string, meta *metav1.ListMeta) (head, tail []byte) {
	head = append(head, `{"kind":"`...)
	head = append(head, kind...)
	head = append(head, `","apiVersion":"`...)
	head = append(head, apiVersion...)
	head = append(head, `","metadata":{`...)
	head = append(head, `"resourceVersion":"`...)
	head = append(append(head, meta.ResourceVersion...), '"')
	if meta.Continue != "" {
		head = append(head, `,"continue":"`...)
		head = append(append(head, meta.Continue...), '"')
	}
	if meta.RemainingItemCount != nil {
		head = fmt.Appendf(head, `,"remainingItemCount":%d`, *meta.RemainingItemCount)
	}
	return append(head, `},"items":[`...), []byte("]}\n")
}

// customFrame is the frame of a list that upstream keeps untyped: sorted keys,
// and continue even when it is empty.
func customFrame(c readable, meta *metav1.ListMeta) (head, tail []byte) {
	kind, apiVersion := c.ListKind()
	head = append(head, `{"apiVersion":"`...)
	head = append(head, apiVersion...)
	head = append(head, `","items":[`...)
	tail = append(tail, `],"kind":"`...)
	tail = append(tail, kind...)
	tail = append(tail, `","metadata":{"continue":"`...)
	tail = append(append(tail, meta.Continue...), '"')
	if meta.RemainingItemCount != nil {
		tail = fmt.Appendf(tail, `,"remainingItemCount":%d`, *meta.RemainingItemCount)
	}
	tail = append(tail, `,"resourceVersion":"`...)
	tail = append(tail, meta.ResourceVersion...)
	return head, append(tail, "\"}}\n"...)
}
