package form

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/protobuf"
	"github.com/kubeweir/kubeweir/object"
)

// metadata renders objects reduced to their metadata (PartialObjectMetadata). The metadata is a
// part of the object's bytes, or derived from it; see deriveMetadata.
type metadata struct {
	base
	// values are the metadata of a response's objects if they must be derived.
	values [][]byte
}

func (f *metadata) prepare(p place, objs Objects) (Objects, error) {
	if f.res.ownMetadata() {
		return objs, nil
	}
	var err error
	f.values, err = f.r.metadataOfAll(p, f.metadataRep(f.rep.Encoding), objs)
	return objs, err
}

// of returns the metadata of object i, in one or two parts.
func (f *metadata) of(i int, o *object.Object) (value, rest []byte) {
	if f.values != nil {
		return f.values[i], nil
	}
	return f.ownMetadata(o)
}

// size returns the length of object i as a PartialObjectMetadata.
func (f *metadata) size(i int, o *object.Object) int {
	value, rest := f.of(i, o)
	return f.enc.PartialSize(len(value) + len(rest))
}

func (f *metadata) frame(l *List, n, size int) (head, tail []byte) {
	meta := l.meta()
	// kube-apiserver encodes an empty list of items as null.
	return f.enc.List(encoding.ListType{APIVersion: encoding.PartialAPIVersion, Kind: encoding.PartialListKind, Null: true}, &meta, n, size)
}

func (f *metadata) itemSize(i int, o *object.Object) (n int, exact bool) {
	return f.enc.ItemSize(f.size(i, o)), true
}

func (f *metadata) item(w *chunks.Writer, i int, o *object.Object) {
	f.itemHead(w, f.size(i, o))
	f.write(w, i, o)
}

func (f *metadata) singleFrame(o *object.Object) (head, tail []byte) {
	return f.enc.Body(encoding.PartialAPIVersion, encoding.PartialKind, f.size(0, o))
}

func (f *metadata) singleSize(o *object.Object) (n int, exact bool) { return f.size(0, o), true }

func (f *metadata) single(w *chunks.Writer, o *object.Object) { f.write(w, 0, o) }

// write writes object i as a PartialObjectMetadata.
func (f *metadata) write(w *chunks.Writer, i int, o *object.Object) {
	value, rest := f.of(i, o)
	w.Append(encoding.MaxHead, func(b []byte) []byte { return f.enc.AppendPartialHead(b, len(value)+len(rest)) })
	w.Refer(value)
	w.Refer(rest)
	w.CopyString(f.enc.PartialTail())
}

func (f *metadata) sharing() sharing {
	if f.enc.AroundPartial() != nil && f.res.ownMetadata() {
		return referring
	}
	return kept
}

func (f *metadata) event(fr *Frames, t api.EventType, i int, o *object.Object, _ time.Time) error {
	if f.values != nil {
		f.enc.PartialEvent(&fr.pieces, t, f.values[i])
		return nil
	}
	value, rest, err := f.metadataOf(f.rep.Encoding, o)
	if err != nil {
		return err
	}
	if rest == nil {
		f.enc.PartialEvent(&fr.pieces, t, value)
	} else {
		f.eventInTwo(&fr.pieces, t, value, rest)
	}
	return nil
}

// eventInTwo appends an event with metadata in two parts.
func (f *metadata) eventInTwo(p *encoding.Pieces, t api.EventType, value, rest []byte) {
	if around := f.enc.AroundPartial(); around != nil {
		p.List = append(p.List, around.Heads[t], value, rest, around.Tail)
		return
	}
	n := len(value) + len(rest)
	f.enc.EventHead(p, t, encoding.PartialAPIVersion, encoding.PartialKind, f.enc.PartialSize(n))
	p.Make(func(b []byte) []byte { return f.enc.AppendPartialHead(b, n) })
	p.List = append(p.List, value, rest, f.enc.EventTail())
}

func (f *metadata) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	value, err := bookmarkMetadata(f.res, f.rep.Encoding, t, rv, end)
	if err != nil {
		return err
	}
	f.enc.PartialEvent(&fr.pieces, api.Bookmark, value)
	return nil
}

// bookmarkMetadata returns the metadata of a bookmark for a PartialObjectMetadata. The metadata of
// a custom resource is encoded anew, because kube-apiserver decodes it from an unstructured object
// and encodes it as ObjectMeta.
func bookmarkMetadata(res *Resource, enc api.Encoding, t encoding.BookmarkTemplate, rv uint64, end bool) ([]byte, error) {
	switch {
	case !res.Custom:
		return t.AppendMetadata(nil, rv, end), nil
	case enc == api.JSON:
		return table.PartialMetadata(t.AppendObject(nil, rv, end))
	}
	meta := metav1.ObjectMeta{ResourceVersion: formatRV(rv)}
	if end {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta.Marshal()
}

// metadataOfAll returns the derived metadata of objs in order. p is where they are cached, rep a
// metadataRep.
func (r *Renderer) metadataOfAll(p place, rep api.Representation, objs Objects) ([][]byte, error) {
	s := p.slot(derivedMetas)
	s.rep = rep
	return collect(r, p, s, objs, func(res *Resource, o *object.Object) ([]byte, error) {
		return r.derivedMetadata(res, rep, o)
	})
}

// metadataRep returns the parts of the representation that metadata in enc depends on.
func (b *base) metadataRep(enc api.Encoding) api.Representation {
	return api.Representation{Encoding: enc, DropManagedFields: b.rep.DropManagedFields}
}

// metadataOf returns the metadata of an object for a PartialObjectMetadata in enc, in one or two
// parts.
func (b *base) metadataOf(enc api.Encoding, o *object.Object) (value, rest []byte, err error) {
	if b.res.ownMetadata() {
		value, rest = b.ownMetadata(o)
		return value, rest, nil
	}
	value, err = b.r.derivedMetadata(b.res, b.metadataRep(enc), o)
	return value, nil, err
}

// ownMetadata returns metadata that need not be derived.
func (b *base) ownMetadata(o *object.Object) (value, rest []byte) {
	if b.rep.DropManagedFields {
		return o.DroppedMetadata()
	}
	return o.Metadata(), nil
}

// derivedMetadata is a cached deriveMetadata.
func (r *Renderer) derivedMetadata(res *Resource, rep api.Representation, o *object.Object) ([]byte, error) {
	s := slot{kind: derivedMetadata, rep: rep, resource: res, key: o.Key}
	return derived.Once(r.derived, &s, o.ID, func() ([]byte, int, error) {
		value, err := deriveMetadata(res, rep, o)
		if err != nil {
			return nil, 0, fmt.Errorf("metadata of %s: %w", o.Key, err)
		}
		return value, len(value), nil
	})
}

// deriveMetadata derives the metadata of an object as kube-apiserver does: custom resources have
// sorted keys, which it reorders as in ObjectMeta; some built-in resources have annotations that it
// hides.
func deriveMetadata(res *Resource, rep api.Representation, o *object.Object) ([]byte, error) {
	stored, enc := o.Encoded, rep.Encoding
	if rep.DropManagedFields {
		stored = encoding.Drop(object.Codec(res.storedFor(enc)), stored)
	}
	own := stored.Raw[stored.MetaStart:stored.MetaEnd]
	switch {
	case !res.Custom && enc == api.Protobuf:
		return protobuf.HideAnnotations(own, res.hiddenAnnotations())
	case !res.Custom:
		return table.HideAnnotations(own, res.hiddenAnnotations())
	}
	value, err := table.PartialMetadata(stored.Raw)
	if err == nil && enc == api.Protobuf {
		value, err = protobufMetadata(value)
	}
	return value, err
}

// protobufMetadata converts an ObjectMeta from JSON to protobuf.
func protobufMetadata(data []byte) ([]byte, error) {
	var typed metav1.ObjectMeta
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	return typed.Marshal()
}
