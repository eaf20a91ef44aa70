package form

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/object"
)

// transcoded is objects that are kept as JSON, or their metadata, in CBOR: once for each version of
// an object.
//
// No collection is fed in CBOR, though kube-apiserver can serve it. For a pod of 5.9 KB (2 cores of
// a Xeon, Go 1.26; encoding/cbor and object have the benchmarks):
//
//	transcoding its JSON, when a client first wants the version     8.0 us, 4.9 KB kept while there is room
//	scanning it in a feed, if as fast as JSON: at every version     6.2 us, and 5.5 KB kept for ever
//	only seeing that it is well-formed CBOR                         2.9 us
//	kube-apiserver's encoding of it, for one more feed             45.5 us
//
// A feed would save 1.8 us of what clients of CBOR want, cost 6.2 us of what they do not, six times
// that upstream, and hold all objects once more: for 50,000 pods 290 MB. Whoever has that room
// gives it to limits.derivedCacheBytes, which is filled with what is read. Nor would a client see
// one version in JSON and another in CBOR.
type transcoded struct {
	base
	shape cbor.Shape
	// values are those of the objects of a response.
	values []transcodedObject
}

// transcodedObject is a message in CBOR, of an object or of its PartialObjectMetadata.
type transcodedObject struct {
	raw []byte
	// afterType is where in raw the members begin that a typed list has of it; 0 if that
	// has all.
	afterType int
}

func newTranscoded(common base) *transcoded {
	f := &transcoded{base: common}
	if !f.partial() && !f.res.Custom {
		f.shape = cbor.ShapeOf(schema.FromAPIVersionAndKind(f.res.APIVersion, f.res.Kind))
	}
	return f
}

// partial reports whether objects are reduced to their metadata.
func (f *transcoded) partial() bool { return f.rep.Transform == api.PartialMetadata }

func (f *transcoded) prepare(p place, objs Objects) (Objects, error) {
	s := p.slot(derivedTranscodedAll)
	s.rep = f.rep
	var err error
	f.values, err = collect(f.r, p, s, objs, func(_ *Resource, o *object.Object) (transcodedObject, error) { return f.derive(o) })
	return objs, err
}

// derive is transcode, done once for each version of an object.
func (f *transcoded) derive(o *object.Object) (transcodedObject, error) {
	s := slot{kind: derivedTranscoded, rep: f.rep, resource: f.res, key: o.Key}
	if value, ok := f.r.derived.get(&s, o.ID); ok {
		return value.(transcodedObject), nil
	}
	value, err := f.r.derived.obtain(&s, o.ID, nil, func(*derivedEntry) (any, int, error) {
		value, err := f.transcode(o)
		if err != nil {
			return nil, 0, fmt.Errorf("transcoding %s: %w", o.Key, err)
		}
		return value, cap(value.raw), nil
	})
	if err != nil {
		return transcodedObject{}, err
	}
	return value.(transcodedObject), nil
}

// transcode makes a message of the bytes of an object.
func (f *transcoded) transcode(o *object.Object) (value transcodedObject, err error) {
	if f.partial() {
		metadata, rest, err := f.metadataOf(api.JSON, o)
		if err != nil {
			return value, err
		}
		if rest != nil {
			metadata = slices.Concat(metadata, rest)
		}
		value.raw, err = f.partialMessage(metadata)
		return value, err
	}
	stored := o.Encoded
	if f.rep.DropManagedFields {
		stored = encoding.Drop(object.Codec(api.JSON), stored)
	}
	if value.raw, err = f.message(stored.Raw); err != nil {
		return value, err
	}
	if o.ListOffset > 0 {
		value.afterType, err = cbor.AfterType(value.raw)
	}
	return value, err
}

// message is JSON in CBOR, which is a fifth shorter.
func (f *transcoded) message(text []byte) ([]byte, error) {
	return cbor.Append(make([]byte, 0, len(text)), text, f.shape)
}

// partialMessage is a PartialObjectMetadata in CBOR.
func (f *transcoded) partialMessage(metadata []byte) ([]byte, error) {
	b := make([]byte, 0, f.enc.PartialSize(len(metadata)))
	return cbor.Append(f.enc.AppendPartialHead(b, 0), metadata, cbor.Untyped)
}

func (f *transcoded) frame(l *List, n, size int) (head, tail []byte) {
	meta := l.meta()
	t := encoding.ListType{APIVersion: l.APIVersion, Kind: l.Kind, Untyped: f.res.Custom}
	if l.Shard != "" && !f.partial() && !f.res.Custom {
		meta.ShardInfo = &metav1.ShardInfo{Selector: l.Shard} // as plain does
	}
	if f.partial() {
		t = encoding.ListType{APIVersion: encoding.PartialAPIVersion, Kind: encoding.PartialListKind, Null: true}
	}
	return f.enc.List(t, &meta, n, size)
}

func (f *transcoded) itemSize(i int, _ *object.Object) (n int, exact bool) {
	if v := &f.values[i]; v.afterType > 0 {
		return cbor.ItemSize(v.raw, v.afterType), true
	}
	return len(f.values[i].raw), true
}

func (f *transcoded) item(w *chunks, i int, _ *object.Object) {
	v := &f.values[i]
	if v.afterType == 0 {
		w.refer(v.raw)
		return
	}
	w.append(encoding.MaxItemHead, func(b []byte) []byte { return cbor.AppendItemHead(b, v.raw) })
	w.refer(v.raw[v.afterType:])
}

func (f *transcoded) singleFrame(*object.Object) (head, tail []byte) {
	return f.enc.Body(f.res.APIVersion, f.res.Kind, len(f.values[0].raw))
}

func (f *transcoded) singleSize(*object.Object) (n int, exact bool) {
	return len(f.values[0].raw), true
}

func (f *transcoded) single(w *chunks, _ *object.Object) { w.write(f.values[0].raw) }

func (f *transcoded) verbatim(*object.Object) []byte { return f.values[0].raw }

func (f *transcoded) sharing() sharing { return kept }

func (f *transcoded) event(fr *Frames, t api.EventType, i int, o *object.Object, _ time.Time) error {
	if f.values != nil {
		f.enc.Event(&fr.pieces, t, f.res.APIVersion, f.res.Kind, f.values[i].raw)
		return nil
	}
	v, err := f.derive(o)
	if err != nil {
		return err
	}
	f.enc.Event(&fr.pieces, t, f.res.APIVersion, f.res.Kind, v.raw)
	return nil
}

func (f *transcoded) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	var message []byte
	var err error
	if f.partial() {
		var metadata []byte
		if metadata, err = bookmarkMetadata(f.res, api.JSON, t, rv, end); err == nil {
			message, err = f.partialMessage(metadata)
		}
	} else {
		message, err = f.message(t.AppendObject(nil, rv, end))
	}
	if err != nil {
		return fmt.Errorf("transcode bookmark: %w", err)
	}
	f.enc.Event(&fr.pieces, api.Bookmark, f.res.APIVersion, f.res.Kind, message)
	return nil
}
