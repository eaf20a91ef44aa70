package form

import (
	"hash/maphash"
	"math"
	"strconv"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Form renders the objects of one resource in one representation, for one response or one watch.
// Renderer.For chooses it; the package comment lists what it promises. A Form is used by one
// goroutine at a time.
type Form interface {
	// common returns what all forms share.
	common() *base

	// prepare derives what the items of a response are rendered from, before the response begins.
	// It returns the objects in the order in which they are written; i below is an index into that
	// order. Derived values are cached under p.
	prepare(p place, objs Objects) (Objects, error)
	// moment returns the time for which a response is rendered. Before prepare it is known only if
	// no look at the objects is needed. Forms without relative times return the zero time, known.
	moment(p place) (at time.Time, known bool)
	// limits returns the window in which n items from first on render as they do at the response's
	// moment.
	limits(first, n int) window

	// itemSize returns the length of item i. If exact is false, n is a lower bound.
	itemSize(i int, o *object.Object) (n int, exact bool)
	// item writes object i as an item of a list, without its separator, or alone for a get.
	item(w *chunks.Writer, i int, o *object.Object)
	// separator returns the bytes between two items.
	separator() string

	// sharing returns which other watches receive the frames that event appends.
	sharing() sharing
	// event appends a watch event with object o, which is the prepared object i if any were
	// prepared. Relative times are rendered for now.
	event(f *Frames, t api.EventType, i int, o *object.Object, now time.Time) error
	// bookmark appends a bookmark at rv. end marks the end of the initial events.
	bookmark(f *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, now time.Time) error
}

// sharing is how the frames of an event are shared between watches.
type sharing uint8

const (
	// byReference frames are the object's own bytes between constants. They are not cached.
	byReference sharing = iota
	// cached frames are built once for all watches and cached with the event.
	cached
	// cachedBriefly frames are kept while their relative times are right.
	cachedBriefly
	// alone frames belong to one watch.
	alone
)

// Resource describes the resource whose objects forms render. Derived values are cached under its
// address, so the new definition of a custom resource is a new Resource and does not use values
// derived for the old one.
type Resource struct {
	// APIVersion and Kind of the objects.
	APIVersion, Kind string
	// Custom is true for resources defined by a CustomResourceDefinition.
	Custom bool
	// Printer renders Tables; nil if there are none.
	Printer table.Printer
}

// hiddenAnnotations returns the annotations that kube-apiserver omits from the metadata.
func (r *Resource) hiddenAnnotations() []string {
	if r.Printer == nil {
		return nil
	}
	return r.Printer.Traits().HiddenAnnotations
}

// ownMetadata reports whether the metadata of a PartialObjectMetadata equals the object's metadata
// byte for byte.
func (r *Resource) ownMetadata() bool {
	return !r.Custom && len(r.hiddenAnnotations()) == 0
}

// storedFor returns the encoding of the stored objects whose metadata is rendered in enc: custom
// resources are stored as JSON, but their metadata has a protobuf form.
func (r *Resource) storedFor(enc api.Encoding) api.Encoding {
	if r.Custom {
		return api.JSON
	}
	return enc
}

// base is the part that all forms share.
type base struct {
	r   *Renderer
	res *Resource
	enc encoding.Framing
	rep api.Representation
	// alone is set for gets, whose only item is an object or its metadata without a list. The Table
	// of a get is that of a list of one object.
	alone bool
	// inOrder keeps the rows of a Table in the order of their objects.
	inOrder bool
	// ownMetadata is Resource.ownMetadata.
	ownMetadata bool
	// fields are the paths to which whole objects are reduced; nil for all.
	fields *json.Projection
}

// framings holds the framing of each encoding.
var framings = [...]encoding.Framing{
	api.JSON:     json.Codec{},
	api.Protobuf: protobuf.Codec{},
	api.CBOR:     cbor.Framing{},
}

func (b *base) common() *base { return b }

// partial reports whether objects are reduced to their metadata.
func (b *base) partial() bool { return b.rep.Transform == api.PartialMetadata }

// whole returns the bytes of an object stored as JSON.
func (b *base) whole(o *object.Object) []byte {
	if b.rep.DropManagedFields {
		return encoding.Drop(json.Codec{}, o.Encoded).Raw
	}
	return o.Raw
}

// itemHead writes the bytes before an item whose message has n bytes.
func (b *base) itemHead(w *chunks.Writer, n int) {
	if !b.alone {
		w.Append(encoding.MaxItemHead, func(buf []byte) []byte { return b.enc.AppendItemHead(buf, n) })
	}
}

// messageSize returns the length of an item whose message has n bytes.
func (b *base) messageSize(n int) int {
	if b.alone {
		return n
	}
	return b.enc.ItemSize(n)
}

func (b *base) separator() string { return b.enc.Separator() }

func (b *base) moment(place) (time.Time, bool) { return time.Time{}, true }

func (b *base) limits(int, int) window { return always }

// window is an interval [from, until), in Unix nanoseconds, in which something renders the same.
type window struct{ from, until int64 }

var always = window{math.MinInt64, math.MaxInt64}

func (w window) contains(at int64) bool { return w.from <= at && at < w.until }

// Options configures a Renderer.
type Options struct {
	// DerivedBytes limits the size of the cached derived values, in bytes.
	DerivedBytes int64
	// Now is the clock for relative times in the Tables of lists and gets.
	Now func() time.Time
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Renderer renders the bodies of gets and lists and the events of watches, and caches what it
// derives for them. It is safe for concurrent use. Close releases its resources.
type Renderer struct {
	now     func() time.Time
	derived *derived.Cache[slot]
	coder   *pieces.Encoder
	writers *chunks.Pool
	tags    tagger
	metrics metrics
	// transcoding holds a slot for each body that is being transcoded.
	transcoding chan struct{}
}

// Objects are the immutable objects of a response in key order.
type Objects interface {
	Len() int
	// Each calls visit with each object and its index until visit returns false.
	Each(visit func(i int, o *object.Object) bool)
}

// oneObject is the Objects of a get.
type oneObject struct{ o *object.Object }

func (oneObject) Len() int { return 1 }

func (s oneObject) Each(visit func(i int, o *object.Object) bool) { visit(0, s.o) }

// sliceOfObjects are Objects in an arbitrary order.
type sliceOfObjects []*object.Object

func (s sliceOfObjects) Len() int { return len(s) }

func (s sliceOfObjects) Each(visit func(i int, o *object.Object) bool) {
	for i, o := range s {
		if !visit(i, o) {
			return
		}
	}
}

// sizeOf returns the size of the items of objs, without separators, or at least limit+1 if it
// exceeds limit. If exact is false, it is a lower bound.
func sizeOf(f Form, objs Objects, limit int) (size int, exact bool) {
	exact = true
	objs.Each(func(i int, o *object.Object) bool {
		n, known := f.itemSize(i, o)
		size += n
		exact = exact && known
		return size <= limit
	})
	return size, exact
}

// collect calls one for each object, or returns the results stored in slot s of p.
func collect[T any](r *Renderer, p place, s slot, objs Objects, one func(*object.Object) (T, error)) ([]T, error) {
	all := func() ([]T, error) {
		var failed error
		values := make([]T, objs.Len())
		objs.Each(func(i int, o *object.Object) bool {
			values[i], failed = one(o)
			return failed == nil
		})
		return values, failed
	}
	// The collected values stay reachable beyond the budget. Pages and selections are not stored,
	// so at most two generations per namespace are.
	if s.scope != (Scope{Namespace: s.scope.Namespace}) {
		return all()
	}
	return derived.Once(r.derived, &s, p.id, func() ([]T, int, error) {
		values, err := all()
		var element T
		return values, len(values) * int(unsafe.Sizeof(element)), err
	})
}

// List is the result of a list, or the initial state of a watch, independent of any form.
type List struct {
	Objects
	// Kind and APIVersion of the list, such as PodList and v1.
	Kind, APIVersion string
	// RV is the list's resourceVersion. Continue and RemainingItemCount are set if objects remain
	// after this page.
	RV                 uint64
	Continue           string
	RemainingItemCount *int64
	// Counts is the member "kubeweir" of the list's metadata, in the list's encoding; nil for none.
	// Only forms in JSON and CBOR support it.
	Counts []byte
	// Shard is the shard selector, or "".
	Shard string
	// Content identifies the state that the objects were selected from. Lists of a resource with
	// equal Content and Scope have the same objects.
	Content uint64
	Scope   Scope
}

// Scope selects objects of a state for a list. Values derived from one list are found, or
// built upon, by the next list of the same Scope.
type Scope struct {
	// Namespace is "" for all namespaces. From is the first key of a page, and Limit its size; 0
	// means no pages.
	Namespace, From string
	Limit           int
	// Selectors is the text of the selectors, or "".
	Selectors string
	// Key is the key of a single object, or "" for a list.
	Key string
}

// place returns where values derived from a list are cached.
func (b *base) place(l *List) place {
	return place{slotOf: slot{resource: b.res, redacted: b.rep.Redacted, scope: l.Scope}, id: l.Content}
}

// slot returns the slot of a value derived from an object.
func (b *base) slot(k derivedKind, o *object.Object) slot {
	return slot{kind: k, resource: b.res, redacted: b.rep.Redacted, scope: Scope{Key: o.Key}}
}

// Client describes what the client of a get or list accepts and has cached.
type Client struct {
	// Compression for bodies above api.CompressionThreshold.
	Compression api.Compression
	// IfNoneMatch is the If-None-Match header.
	IfNoneMatch string
}

// formatRV formats a resourceVersion.
func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

// slot is the key of a derived value.
type slot struct {
	kind     derivedKind
	rep      api.Representation
	coding   api.Compression
	resource *Resource
	// redacted separates values derived from redacted objects from those of the plain objects.
	redacted bool
	scope    Scope
}

// place identifies where derived values of a response's objects are cached: the slot of the list or
// object, and the version of its content.
type place struct {
	slotOf slot // kind, rep and coding are left empty
	id     uint64
}

func (p place) slot(k derivedKind) slot {
	s := p.slotOf
	s.kind = k
	return s
}

// derivedKind is the kind of value in a slot.
type derivedKind uint8

// derivedKinds are the names of the kinds in metrics.
var derivedKinds = []string{"row", "metadata", "rows", "metadata_list", "table_window", "body", "initial_events", "transcoded", "transcoded_list", "redacted", "redacted_list"}

// Kind implements derived.Slot.
func (s slot) Kind() int { return int(s.kind) }

// IsExpensive implements derived.Slot: values of lists are computed from those of their objects.
func (s slot) IsExpensive() bool {
	switch s.kind {
	case derivedRows, derivedMetas, derivedBody, derivedInitial, derivedTranscodedAll, derivedRedactedAll:
		return true
	}
	return false
}

// Size implements derived.Slot.
func (s slot) Size() int { return len(s.scope.Key) + len(s.scope.Selectors) + len(s.scope.From) }

// tagger computes ETags. An ETag names the exact bytes of a response. It depends on:
//
//   - the process, so that versions of different upstreams, or of one upstream before and after a
//     restore from backup, never collide
//   - the state of the collection or object, the list's version and its selection
//   - the representation and the accepted compression
//   - for Tables, the column definitions, which differ between releases, and the moment since which
//     they render the same
//
// Responses are "no-cache, private": browsers may store them, and must revalidate them with the
// ETag before each use. Revalidation is authorized like any other read, so a 304 reveals nothing
// that a 200 would not. Like kube-apiserver, responses have no Vary for Accept: the ETags of two
// representations differ, so one never confirms the other.
type tagger struct {
	process string
	start   time.Time
	seed    maphash.Seed // seed of the hashes of scopes
}

// Frames collects, in pieces, the frames that a watch writes at once. Frames are reusable: one
// goroutine that writes many watches uses the same Frames for all of them.
type Frames struct {
	pieces encoding.Pieces
	// sent is the value of Watch.sent once the frames are written.
	sent compressedStream
}

// List returns the pieces in order. They are valid until the Frames are used again.
func (f *Frames) List() [][]byte { return f.pieces.List }

func (f *Frames) reset() { f.pieces.List, f.pieces.Buf = f.pieces.List[:0], f.pieces.Buf[:0] }

const (
	derivedRow           derivedKind = iota // *table.Row of an object
	derivedMetadata                         // []byte, metadata of a custom resource's object
	derivedRows                             // []*table.Row of a list
	derivedMetas                            // [][]byte of a list
	derivedWindow                           // window of a list or an object
	derivedBody                             // *compressed, items of a list or an object
	derivedInitial                          // *compressed, initial events of a watch
	derivedTranscoded                       // transcodedObject of an object
	derivedTranscodedAll                    // []transcodedObject of a list
	derivedRedacted                         // *object.Object, redacted
	derivedRedactedAll                      // []*object.Object of a list
)

// metrics are the metrics of a Renderer. The handles of the common series are cached.
type metrics struct {
	bytes  *prometheus.CounterVec
	bodies [len(framings)][3][3]prometheus.Counter // by encoding, transform, coding
}

// compressedStream is the state of a compressed watch that the end of the stream depends on.
type compressedStream struct {
	begun bool // the header was sent
	crc   uint32
	raw   uint32 // length before compression, modulo 2^32
}

// add counts a compressed part.
func (s *compressedStream) add(crc, shift, length uint32) {
	s.crc = pieces.CombineCRC(s.crc, crc, shift)
	s.raw += length
}
