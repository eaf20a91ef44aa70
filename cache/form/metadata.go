package form

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
	"github.com/kubeweir/kubeweir/internal/object"
)

// metadata is objects reduced to their metadata, PartialObjectMetadata. It is what
// stands in the objects, or derived from that: see deriveMetadata.
type metadata struct {
	base
	// values are those of the objects of a response where they have to be derived.
	values [][]byte
}

func (f *metadata) prepare(p place, objs Objects) (Objects, error) {
	if f.res.ownMetadata() {
		return objs, nil
	}
	var err error
	f.values, err = f.r.metadataOfAll(p, f.rep.Encoding, objs)
	return objs, err
}

// of is the metadata of object i.
func (f *metadata) of(i int, o *object.Object) []byte {
	if f.values != nil {
		return f.values[i]
	}
	return o.Metadata()
}

func (f *metadata) frame(l *List, n, size int) (head, tail []byte) {
	meta := l.meta()
	// Upstream never makes the slice of items when there is nothing to put in.
	return f.enc.List(encoding.ListType{APIVersion: encoding.PartialAPIVersion, Kind: encoding.PartialListKind, Null: true}, &meta, n, size)
}

func (f *metadata) itemSize(i int, o *object.Object) (n int, exact bool) {
	return f.enc.ItemSize(f.enc.PartialSize(len(f.of(i, o)))), true
}

func (f *metadata) item(w *chunks, i int, o *object.Object) {
	value := f.of(i, o)
	f.itemHead(w, f.enc.PartialSize(len(value)))
	f.write(w, value)
}

func (f *metadata) singleFrame(o *object.Object) (head, tail []byte) {
	return f.enc.Body(encoding.PartialAPIVersion, encoding.PartialKind, f.enc.PartialSize(len(f.of(0, o))))
}

func (f *metadata) singleSize(o *object.Object) (n int, exact bool) {
	return f.enc.PartialSize(len(f.of(0, o))), true
}

func (f *metadata) single(w *chunks, o *object.Object) { f.write(w, f.of(0, o)) }

// write writes a PartialObjectMetadata.
func (f *metadata) write(w *chunks, value []byte) {
	w.append(encoding.MaxHead, func(b []byte) []byte { return f.enc.AppendPartialHead(b, len(value)) })
	w.refer(value)
	w.writeString(f.enc.PartialTail())
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
	value, err := f.r.metadataOf(f.res, f.rep.Encoding, o)
	if err != nil {
		return err
	}
	f.enc.PartialEvent(&fr.pieces, t, value)
	return nil
}

func (f *metadata) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	value, err := bookmarkMetadata(f.res, f.rep.Encoding, t, rv, end)
	if err != nil {
		return err
	}
	f.enc.PartialEvent(&fr.pieces, api.Bookmark, value)
	return nil
}

// bookmarkMetadata is the metadata of a bookmark as a PartialObjectMetadata has
// it. That of a custom resource is made anew: upstream reads it from an untyped
// object and writes it as ObjectMeta.
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

// metadataOfAll returns the metadata of objects in the given encoding, in their order,
// where it is not what stands in them; p is their place.
func (r *Renderer) metadataOfAll(p place, enc api.Encoding, objs Objects) ([][]byte, error) {
	s := p.slot(derivedMetas)
	s.rep.Encoding = enc
	return collect(r, p, s, objs, func(res *Resource, o *object.Object) ([]byte, error) {
		return r.derivedMetadata(res, enc, o)
	})
}

// metadataOf returns the metadata of an object in the given encoding, as it stands in a
// PartialObjectMetadata.
func (r *Renderer) metadataOf(res *Resource, enc api.Encoding, o *object.Object) ([]byte, error) {
	if res.ownMetadata() {
		return o.Metadata(), nil
	}
	return r.derivedMetadata(res, enc, o)
}

// derivedMetadata is deriveMetadata, done once.
func (r *Renderer) derivedMetadata(res *Resource, enc api.Encoding, o *object.Object) ([]byte, error) {
	s := slot{kind: derivedMetadata, rep: api.Representation{Encoding: enc}, resource: res, key: o.Key}
	if value, ok := r.derived.get(&s, o.ID); ok {
		return value.([]byte), nil
	}
	value, err := r.derived.obtain(&s, o.ID, nil, func(*derivedEntry) (any, int, error) {
		value, err := deriveMetadata(res, enc, o)
		if err != nil {
			return nil, 0, fmt.Errorf("metadata of %s: %w", o.Key, err)
		}
		return value, len(value), nil
	})
	if err != nil {
		return nil, err
	}
	return value.([]byte), nil
}

// deriveMetadata makes the metadata of an object as upstream does: that of a custom
// resource has sorted keys where upstream gives them in the order of ObjectMeta, that
// of some built-in ones annotations which upstream hides.
func deriveMetadata(res *Resource, enc api.Encoding, o *object.Object) ([]byte, error) {
	switch {
	case !res.Custom && enc == api.Protobuf:
		return protobuf.HideAnnotations(o.Metadata(), res.hiddenAnnotations())
	case !res.Custom:
		return table.HideAnnotations(o.Metadata(), res.hiddenAnnotations())
	}
	value, err := table.PartialMetadata(o.Raw)
	if err == nil && enc == api.Protobuf {
		value, err = protobufMetadata(value)
	}
	return value, err
}

// protobufMetadata turns the JSON of an ObjectMeta into protobuf.
func protobufMetadata(data []byte) ([]byte, error) {
	var typed metav1.ObjectMeta
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	return typed.Marshal()
}
