package form

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/object"
)

// transcoded renders objects stored as JSON, or their metadata, in CBOR. Objects are transcoded
// once per version.
//
// No collection is filled in CBOR, although kube-apiserver can serve it. For a pod of 5.9 KB (2
// cores of a Xeon, Go 1.26; encoding/cbor and object have the benchmarks):
//
//	transcoding its JSON when a client first requests the version   8.0 us, 4.9 KB cached within the budget
//	scanning it in a reflector, if as fast as JSON: every version   6.2 us, 5.5 KB stored permanently
//	kube-apiserver's encoding of it for one more watch             45.5 us
//
// A reflector would save 1.8 us for versions that CBOR clients request, cost 6.2 us for all others
// and six times that upstream, and store every object twice: 290 MB for 50,000 pods. That memory is
// better spent on limits.derivedCacheBytes. One collection also never shows a client one version in
// JSON and another in CBOR.
type transcoded struct {
	partials
	shape cbor.Shape
	// values belong to the objects of a response.
	values []transcodedObject
}

// transcodedObject is an object, or its PartialObjectMetadata, in CBOR.
type transcodedObject struct {
	raw []byte
	// afterType is the offset in raw of the members that an item of a typed list has; 0 if it has
	// all of them.
	afterType int
}

func (f *transcoded) prepare(p place, objs Objects) (Objects, error) {
	var err error
	if f.fields != nil { // pages are small
		objs.Each(func(_ int, o *object.Object) bool {
			var value transcodedObject
			if value.raw, err = f.message(f.fields.Append(nil, f.whole(o))); err != nil {
				err = fmt.Errorf("transcoding a part of %s: %w", o.Key, err)
			}
			f.values = append(f.values, value)
			return err == nil
		})
		return objs, err
	}
	s := p.slot(derivedTranscodedAll)
	s.rep = f.rep
	f.values, err = collect(f.r, p, s, objs, f.derive)
	return objs, err
}

// derive is a cached transcode.
func (f *transcoded) derive(o *object.Object) (transcodedObject, error) {
	s := f.slot(derivedTranscoded, o)
	s.rep = f.rep
	return derived.Once(f.r.derived, &s, o.ID, func() (transcodedObject, int, error) {
		value, err := f.transcode(o)
		if err != nil {
			return value, 0, fmt.Errorf("transcoding %s: %w", o.Key, err)
		}
		return value, cap(value.raw), nil
	})
}

// transcode encodes the bytes of an object in CBOR.
func (f *transcoded) transcode(o *object.Object) (value transcodedObject, err error) {
	if f.partial() {
		metadata, rest, err := f.metadataOf(0, o)
		if err != nil {
			return value, err
		}
		if rest != nil {
			metadata = slices.Concat(metadata, rest)
		}
		value.raw, err = f.partialMessage(metadata)
		return value, err
	}
	if value.raw, err = f.message(f.whole(o)); err != nil {
		return value, err
	}
	if o.ListOffset > 0 {
		value.afterType, err = cbor.AfterType(value.raw)
	}
	return value, err
}

// message transcodes JSON to CBOR, which is a fifth shorter.
func (f *transcoded) message(text []byte) ([]byte, error) {
	return cbor.Append(make([]byte, 0, len(text)), text, f.shape)
}

// partialMessage returns a PartialObjectMetadata in CBOR.
func (f *transcoded) partialMessage(metadata []byte) ([]byte, error) {
	b := make([]byte, 0, f.enc.PartialSize(len(metadata)))
	return cbor.Append(f.enc.AppendPartialHead(b, 0), metadata, cbor.Untyped)
}

func (f *transcoded) itemSize(i int, _ *object.Object) (n int, exact bool) {
	if v := &f.values[i]; v.afterType > 0 && !f.alone {
		return cbor.ItemSize(v.raw, v.afterType), true
	}
	return len(f.values[i].raw), true
}

func (f *transcoded) item(w *chunks.Writer, i int, _ *object.Object) {
	v := &f.values[i]
	if v.afterType == 0 || f.alone {
		w.Refer(v.raw)
		return
	}
	w.Append(encoding.MaxItemHead, func(b []byte) []byte { return cbor.AppendItemHead(b, v.raw) })
	w.Refer(v.raw[v.afterType:])
}

func (f *transcoded) sharing() sharing { return cached }

func (f *transcoded) event(fr *Frames, t api.EventType, i int, o *object.Object, _ time.Time) error {
	var v transcodedObject
	var err error
	if f.values != nil {
		v = f.values[i]
	} else if v, err = f.derive(o); err != nil {
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
		if metadata, err = f.bookmarkMetadata(t, rv, end); err == nil {
			message, err = f.partialMessage(metadata)
		}
	} else {
		message, err = f.message(t.AppendObject(nil, rv, end))
	}
	if err != nil {
		return fmt.Errorf("transcoding bookmark: %w", err)
	}
	f.enc.Event(&fr.pieces, api.Bookmark, f.res.APIVersion, f.res.Kind, message)
	return nil
}
