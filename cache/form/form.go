package form

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/encoding/protobuf"
	"github.com/kubeweir/kubeweir/object"
)

// Form is how the objects of one resource look in one representation, in one response
// or in one watch. Renderer.For chooses it; the package comment says what it promises.
// A Form is used by one goroutine at a time.
type Form interface {
	// common is what all forms have.
	common() *base

	// prepare derives what the items of a response are made of, before it begins: one
	// that has begun cannot become a forwarded one. It returns the objects in the order
	// in which they are to be written; i below is the place of an object in it. What
	// was derived is kept under p.
	prepare(p place, objs Objects) (Objects, error)
	// moment is the time for which a response is written, known before prepare only
	// where that takes no look at the objects. Forms in which no time passes have none,
	// and know that.
	moment(p place) (at time.Time, known bool)
	// limits are from when and until when (unix time in nanoseconds, exclusive) n items
	// from the first on read as they do at the response's moment.
	limits(first, n int) (from, until int64)

	// frame is what a list of n items has before and after them; size is the sum of
	// theirs.
	frame(l *List, n, size int) (head, tail []byte)
	// itemSize is the length of object i as an item of a list, or what is known of it at
	// least, with exact unset.
	itemSize(i int, o *object.Object) (n int, exact bool)
	// item writes object i as an item of a list, without its separator.
	item(w *chunks, i int, o *object.Object)

	// singleFrame, singleSize and single are frame, itemSize and item for a get.
	singleFrame(o *object.Object) (head, tail []byte)
	singleSize(o *object.Object) (n int, exact bool)
	single(w *chunks, o *object.Object)
	// verbatim are the bytes that single writes, where they need not be made, else nil.
	verbatim(o *object.Object) []byte

	// sharing says who else is sent the frames that event makes.
	sharing() sharing
	// event appends a watch event with object o, the i-th of those prepared if there are
	// any. now is for which time it is written.
	event(f *Frames, t api.EventType, i int, o *object.Object, now time.Time) error
	// bookmark appends a bookmark at rv; end marks the end of the initial events.
	bookmark(f *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, now time.Time) error
}

// sharing is what the frames of an event have in common with those of other watches.
type sharing uint8

const (
	// referring: they are the object's own bytes between constant ones. There is nothing
	// to keep.
	referring sharing = iota
	// kept: they are made once for all watches and kept with the event.
	kept
	// keptYoung: the same, while the relative times in them are right.
	keptYoung
	// alone: they are this watch's.
	alone
)

// Resource is what forms know of the resource whose objects they give. What is derived
// from objects is kept under its address: the new definition of a custom resource is
// another Resource and meets nothing of what the old one left.
type Resource struct {
	// APIVersion and Kind are those of its objects.
	APIVersion, Kind string
	// Custom is true for resources defined by a CustomResourceDefinition.
	Custom bool
	// Printer renders its tables; nil when there are none.
	Printer table.Printer

	// redacted is that of redacted objects, made when it is first wanted; see redactedOne.
	redacted   atomic.Pointer[Resource]
	isRedacted bool
}

// hiddenAnnotations are those that upstream leaves out of the metadata.
func (r *Resource) hiddenAnnotations() []string {
	if r.Printer == nil {
		return nil
	}
	return r.Printer.Traits().HiddenAnnotations
}

// ownMetadata reports whether the metadata of objects is, as it stands, that of
// their PartialObjectMetadata.
func (r *Resource) ownMetadata() bool {
	return !r.Custom && len(r.hiddenAnnotations()) == 0
}

// storedFor is the encoding of the objects whose metadata is given in enc: custom
// resources are kept as JSON, but their metadata has a protobuf form.
func (r *Resource) storedFor(enc api.Encoding) api.Encoding {
	if r.Custom {
		return api.JSON
	}
	return enc
}

// base is what all forms have, and what most of them do.
type base struct {
	r   *Renderer
	res *Resource
	rep api.Representation
	enc encoding.Framing
}

// framings are what objects are given in: an encoding is a row here.
var framings = [...]encoding.Framing{
	api.JSON:     json.Codec{},
	api.Protobuf: protobuf.Codec{},
	api.CBOR:     cbor.Framing{},
}

func (b *base) common() *base { return b }

// itemHead writes what comes before an item whose message has n bytes.
func (b *base) itemHead(w *chunks, n int) {
	w.append(encoding.MaxItemHead, func(buf []byte) []byte { return b.enc.AppendItemHead(buf, n) })
}

func (b *base) moment(place) (time.Time, bool) { return time.Time{}, true }

func (b *base) limits(int, int) (from, until int64) { return math.MinInt64, math.MaxInt64 }

func (b *base) verbatim(*object.Object) []byte { return nil }

// For chooses the form in which objects that are kept in one encoding are given as rep;
// nil if they cannot be.
func (r *Renderer) For(res *Resource, stored api.Encoding, rep api.Representation) Form {
	if rep.Redacted {
		return r.redacted(res, stored, rep)
	}
	return r.formOf(res, stored, rep)
}

// formOf is For for objects as they are.
func (r *Renderer) formOf(res *Resource, stored api.Encoding, rep api.Representation) Form {
	common := base{r: r, res: res, rep: rep, enc: framings[rep.Encoding]}
	if rep.Encoding == api.CBOR {
		if stored == api.JSON && rep.Transform != api.Table {
			return newTranscoded(common)
		}
		return nil
	}
	switch rep.Transform {
	case api.Table:
		if rep.Encoding == api.JSON && stored == api.JSON && res.Printer != nil {
			return &tables{base: common}
		}
	case api.PartialMetadata:
		if stored == res.storedFor(rep.Encoding) {
			return &metadata{base: common}
		}
	case api.NoTransform:
		if rep.Encoding == stored {
			whole := plain{base: common, around: common.enc.Around()}
			if rep.DropManagedFields {
				return &dropped{plain: whole, codec: object.Codec(stored)}
			}
			return &whole
		}
	}
	return nil
}
