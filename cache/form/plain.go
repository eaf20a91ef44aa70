package form

import (
	"time"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
)

// plain renders objects as they are, the bytes that the upstream sent, or without their
// managedFields: those bytes with a gap.
type plain struct {
	base
	// around is enc's, cached to save a call per object of a list.
	around *encoding.Constants
	// drop encodes metadata without managedFields; nil for whole objects.
	drop encoding.Codec
}

// hasGap reports whether managedFields of o are left out.
func (f *plain) hasGap(o *object.Object) bool { return f.drop != nil && o.ManagedEnd > 0 }

// size returns the length of an object's message.
func (f *plain) size(o *object.Object) int {
	if f.hasGap(o) {
		return encoding.DroppedSize(f.drop, &o.Encoded)
	}
	return len(o.Raw)
}

func (f *plain) prepare(_ place, objs Objects) (Objects, error) { return objs, nil }

// itemOpen begins an item of a typed list of JSON, which has no apiVersion and kind; see json.Item.
const itemOpen = "{"

func (f *plain) itemSize(_ int, o *object.Object) (n int, exact bool) {
	switch n = f.size(o); {
	case f.fields != nil:
		return len("{}"), false
	case f.alone:
	case o.ListOffset > 0:
		n += len(itemOpen) - o.ListOffset
	case f.around == nil:
		n = f.messageSize(n)
	}
	return n, true
}

func (f *plain) item(w *chunks.Writer, _ int, o *object.Object) {
	from := 0
	switch {
	case f.fields != nil:
		whole := f.whole(o)
		w.Append(len(whole), func(b []byte) []byte { return f.fields.Append(b, whole) })
		return
	case f.alone:
	case o.ListOffset > 0:
		w.CopyString(itemOpen)
		from = o.ListOffset
	case f.around == nil:
		f.itemHead(w, f.size(o))
	}
	f.write(w, o, from)
}

// write writes a message from the byte at from on, which must precede the metadata.
func (f *plain) write(w *chunks.Writer, o *object.Object, from int) {
	if !f.hasGap(o) {
		w.Refer(o.Raw[from:])
		return
	}
	if f.around == nil {
		w.Refer(o.Raw[from:encoding.MetaHead(f.drop, &o.Encoded)])
		w.Append(encoding.MaxItemHead, func(b []byte) []byte { return f.drop.AppendMetadataHead(b, o.DroppedMetaSize()) })
		from = int(o.MetaStart)
	}
	w.Refer(o.Raw[from:o.ManagedStart])
	w.Refer(o.Raw[o.ManagedEnd:])
}

func (f *plain) sharing() sharing {
	if f.around != nil {
		return byReference
	}
	return cached
}

func (f *plain) event(fr *Frames, t api.EventType, _ int, o *object.Object, _ time.Time) error {
	p, from := &fr.pieces, 0
	if !f.hasGap(o) {
		f.enc.Event(p, t, f.res.APIVersion, f.res.Kind, o.Raw)
		return nil
	}
	f.enc.EventHead(p, t, f.res.APIVersion, f.res.Kind, f.size(o))
	if f.around == nil {
		p.List = append(p.List, o.Raw[:encoding.MetaHead(f.drop, &o.Encoded)])
		p.Make(func(b []byte) []byte { return f.drop.AppendMetadataHead(b, o.DroppedMetaSize()) })
		from = int(o.MetaStart)
	}
	p.List = append(p.List, o.Raw[from:o.ManagedStart], o.Raw[o.ManagedEnd:], f.enc.EventTail())
	return nil
}

func (f *plain) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	message := fr.pieces.Made(func(b []byte) []byte { return t.AppendObject(b, rv, end) })
	f.enc.Event(&fr.pieces, api.Bookmark, f.res.APIVersion, f.res.Kind, message)
	return nil
}
