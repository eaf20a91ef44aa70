package form

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
	"github.com/kubeweir/kubeweir/internal/object"
)

// metadata renders objects reduced to their metadata (PartialObjectMetadata). The metadata is a
// part of the object's bytes, or derived from it; see deriveMetadata.
type metadata struct{ partials }

// partials is the base of forms that may render metadata. Gets of whole objects do without metas.
type partials struct {
	base
	// metas are the derived metadata of a response's objects, nil if the objects' own is used.
	metas [][]byte
}

func (f *metadata) prepare(p place, objs Objects) (Objects, error) {
	return objs, f.prepareMetadata(p, objs)
}

// size returns the length of object i as a PartialObjectMetadata.
func (f *metadata) size(i int, o *object.Object) int {
	value, rest, _ := f.metadataOf(i, o)
	return f.enc.PartialSize(len(value) + len(rest))
}

func (f *metadata) itemSize(i int, o *object.Object) (n int, exact bool) {
	return f.messageSize(f.size(i, o)), true
}

func (f *metadata) item(w *chunks.Writer, i int, o *object.Object) {
	f.itemHead(w, f.size(i, o))
	value, rest, _ := f.metadataOf(i, o)
	w.Append(encoding.MaxHead, func(b []byte) []byte { return f.enc.AppendPartialHead(b, len(value)+len(rest)) })
	w.Refer(value)
	w.Refer(rest)
	w.CopyString(f.enc.PartialTail())
}

func (f *metadata) sharing() sharing {
	if f.enc.AroundPartial() != nil && f.ownMetadata {
		return byReference
	}
	return cached
}

func (f *metadata) event(fr *Frames, t api.EventType, i int, o *object.Object, _ time.Time) error {
	value, rest, err := f.metadataOf(i, o)
	if err == nil {
		encoding.AppendPartialEvent(f.enc, &fr.pieces, t, value, rest)
	}
	return err
}

func (f *metadata) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	value, err := f.bookmarkMetadata(t, rv, end)
	if err == nil {
		encoding.AppendPartialEvent(f.enc, &fr.pieces, api.Bookmark, value, nil)
	}
	return err
}

// metadataEncoding is the encoding of the metadata from which a form is made.
func (b *base) metadataEncoding() api.Encoding {
	if b.rep.Encoding == api.CBOR {
		return api.JSON
	}
	return b.rep.Encoding
}

// metadataSlot returns s as the slot of derived metadata, with the parts of the representation that
// it depends on.
func (b *base) metadataSlot(s slot) slot {
	s.rep = api.Representation{Encoding: b.metadataEncoding(), DropManagedFields: b.rep.DropManagedFields}
	return s
}

// bookmarkMetadata returns the metadata of a bookmark for a PartialObjectMetadata. The metadata of
// a custom resource is encoded again, because kube-apiserver decodes it from an unstructured object
// and encodes it as ObjectMeta.
func (b *base) bookmarkMetadata(t encoding.BookmarkTemplate, rv uint64, end bool) ([]byte, error) {
	switch {
	case !b.res.Custom:
		return t.AppendMetadata(nil, rv, end), nil
	case b.metadataEncoding() == api.JSON:
		return table.PartialMetadata(t.AppendObject(nil, rv, end))
	}
	meta := metav1.ObjectMeta{ResourceVersion: formatRV(rv)}
	if end {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta.Marshal()
}

// prepareMetadata derives the metadata of a response's objects if it is not a part of their bytes.
// p is where it is cached.
func (b *partials) prepareMetadata(p place, objs Objects) (err error) {
	if !b.ownMetadata {
		b.metas, err = collect(b.r, p, b.metadataSlot(p.slot(derivedMetas)), objs, b.derivedMetadata)
	}
	return err
}

// metadataOf returns the metadata of o, the prepared object i if any were prepared, for a
// PartialObjectMetadata, in one or two parts. It fails only for objects that were not prepared.
func (b *partials) metadataOf(i int, o *object.Object) (value, rest []byte, err error) {
	switch {
	case b.metas != nil:
		value = b.metas[i]
	case !b.ownMetadata:
		value, err = b.derivedMetadata(o)
	case b.rep.DropManagedFields:
		value, rest = o.DroppedMetadata()
	default:
		value = o.Metadata()
	}
	return value, rest, err
}

// derivedMetadata is a cached deriveMetadata.
func (b *base) derivedMetadata(o *object.Object) ([]byte, error) {
	s := b.metadataSlot(b.slot(derivedMetadata, o))
	return derived.Once(b.r.derived, &s, o.ID, func() ([]byte, int, error) {
		value, err := b.deriveMetadata(o)
		if err != nil {
			return nil, 0, fmt.Errorf("metadata of %s: %w", o.Key, err)
		}
		return value, len(value), nil
	})
}

// deriveMetadata derives the metadata of an object as kube-apiserver does: custom resources have
// sorted keys, which it reorders as in ObjectMeta; some built-in resources have annotations that it
// hides.
func (b *base) deriveMetadata(o *object.Object) ([]byte, error) {
	stored, enc := o.Encoded, b.metadataEncoding()
	if b.rep.DropManagedFields {
		stored = encoding.Drop(object.Codec(b.res.storedFor(enc)), stored)
	}
	own := stored.Raw[stored.MetaStart:stored.MetaEnd]
	switch {
	case !b.res.Custom && enc == api.Protobuf:
		return protobuf.HideAnnotations(own, b.res.hiddenAnnotations())
	case !b.res.Custom:
		return table.HideAnnotations(own, b.res.hiddenAnnotations())
	}
	value, err := table.PartialMetadata(stored.Raw)
	if err != nil || enc != api.Protobuf {
		return value, err
	}
	var typed metav1.ObjectMeta
	if err := json.Unmarshal(value, &typed); err != nil {
		return nil, err
	}
	return typed.Marshal()
}
