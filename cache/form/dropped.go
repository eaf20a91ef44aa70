package form

import (
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/object"
)

// dropped renders objects without their managedFields: their own bytes with a gap.
type dropped struct {
	plain
	codec encoding.Codec
}

// size returns the length of an object's message.
func (f *dropped) size(o *object.Object) int { return encoding.DroppedSize(f.codec, &o.Encoded) }

func (f *dropped) itemSize(_ int, o *object.Object) (n int, exact bool) {
	n = f.size(o)
	if o.ListOffset > 0 {
		n -= o.ListOffset - len(itemOpen)
	}
	return f.enc.ItemSize(n), true
}

// itemOpen begins an item without a type of its own; see json.Item.
const itemOpen = "{"

func (f *dropped) item(w *chunks, _ int, o *object.Object) {
	if o.ListOffset > 0 {
		w.writeString(itemOpen)
	} else if f.around == nil {
		f.itemHead(w, f.size(o))
	}
	f.write(w, o, o.ListOffset)
}

// write writes a message from the byte at from on, which must precede the metadata.
func (f *dropped) write(w *chunks, o *object.Object, from int) {
	if o.ManagedEnd == 0 {
		w.refer(o.Raw[from:])
		return
	}
	if f.around == nil {
		w.refer(o.Raw[from:encoding.MetaHead(f.codec, &o.Encoded)])
		w.append(encoding.MaxItemHead, func(b []byte) []byte { return f.codec.AppendMetadataHead(b, o.DroppedMetaSize()) })
		from = int(o.MetaStart)
	}
	w.refer(o.Raw[from:o.ManagedStart])
	w.refer(o.Raw[o.ManagedEnd:])
}

func (f *dropped) singleFrame(o *object.Object) (head, tail []byte) {
	return f.enc.Body(f.res.APIVersion, f.res.Kind, f.size(o))
}

func (f *dropped) singleSize(o *object.Object) (n int, exact bool) { return f.size(o), true }

func (f *dropped) single(w *chunks, o *object.Object) { f.write(w, o, 0) }

func (f *dropped) verbatim(o *object.Object) []byte {
	if o.ManagedEnd > 0 {
		return nil
	}
	return o.Raw
}

func (f *dropped) event(fr *Frames, t api.EventType, i int, o *object.Object, now time.Time) error {
	if o.ManagedEnd == 0 {
		return f.plain.event(fr, t, i, o, now)
	}
	p, from := &fr.pieces, 0
	f.enc.EventHead(p, t, f.res.APIVersion, f.res.Kind, f.size(o))
	if f.around == nil {
		p.List = append(p.List, o.Raw[:encoding.MetaHead(f.codec, &o.Encoded)])
		p.Make(func(b []byte) []byte { return f.codec.AppendMetadataHead(b, o.DroppedMetaSize()) })
		from = int(o.MetaStart)
	}
	p.List = append(p.List, o.Raw[from:o.ManagedStart], o.Raw[o.ManagedEnd:], f.enc.EventTail())
	return nil
}
