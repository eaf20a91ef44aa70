package form

import (
	"hash/maphash"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Options configure a Renderer.
type Options struct {
	// DerivedBytes bounds what is kept of what was derived from objects.
	DerivedBytes int64
	// Now is the clock of relative times in the tables of lists and gets.
	Now func() time.Time
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Renderer makes the bodies of gets and lists and the events of watches, and keeps what
// is derived for that. It is safe for concurrent use. Close releases what it holds.
type Renderer struct {
	now     func() time.Time
	derived *derived
	coder   *coder
	buffers *buffers
	tags    tagger
	metrics metrics
	// transcoding holds a place for each body that is being transcoded.
	transcoding chan struct{}
}

// Objects are those of a response, in the order of their keys. They do not change.
type Objects interface {
	Len() int
	// Each calls visit for each object with its place among them until it returns false.
	Each(visit func(i int, o *object.Object) bool)
}

// List is the answer to a list, or the beginning of a watch, before it has a form.
type List struct {
	Objects
	// Kind and APIVersion of the list (PodList, v1).
	Kind, APIVersion string
	// RV is the version that the list reports; Continue and RemainingItemCount are set
	// when objects remain after a page.
	RV                 uint64
	Continue           string
	RemainingItemCount *int64
	// Counts is what its metadata has as the member kubeweir, in the encoding of the list, nil for
	// none. Only forms in JSON and CBOR have it.
	Counts []byte
	// Shard is the selector that left these objects of all, "" for none.
	Shard string
	// Content identifies the state that the objects were selected from; with the same
	// Content and Scope two lists of a resource have the same objects.
	Content uint64
	Scope   Scope
}

// Scope says which objects of a state a list has. What is derived from one list is
// found again, or built upon, by the next one of the same Scope.
type Scope struct {
	// Namespace is "" for all. From is the first key of a page, and Limit its size, 0
	// for no pages.
	Namespace, From string
	Limit           int
	// Selectors spells them, "" for none.
	Selectors string
}

// meta is what the list says of itself.
func (l *List) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: formatRV(l.RV), Continue: l.Continue, RemainingItemCount: l.RemainingItemCount}
}

// place is where what is derived from the list is kept.
func (l *List) place(res *Resource) place {
	return place{
		slotOf: slot{resource: res, namespace: l.Scope.Namespace, from: l.Scope.From, limit: l.Scope.Limit, key: l.Scope.Selectors},
		id:     l.Content,
	}
}

// Client is what the client of a get or a list has and accepts.
type Client struct {
	// Compression of bodies above api.CompressionThreshold.
	Compression api.Compression
	// IfNoneMatch is the header of that name.
	IfNoneMatch string
}

// formatRV is the decimal form of a version.
func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

// derived keeps what is made from objects and can be made again, within a budget
// of bytes, and sees to it that nothing is made twice at the same time.
//
// What is kept lives in slots: a slot names a form of an object, or of a list,
// whatever its version; a newer version replaces the older in place. So nothing
// outdated takes up room for long, and lists of a changing collection can take
// over from their predecessor what has not changed.
type derived struct {
	// open guards cache against use while it is closed, which it does not do
	// itself; closed says that it is.
	open struct {
		sync.RWMutex
		closed bool
	}
	cache *ristretto.Cache[uint64, *derivedEntry]
	seed  maphash.Seed

	making struct {
		sync.Mutex
		slots map[slot]*making
	}
	metrics derivedMetrics
}

// slot is a place for a derived form.
type slot struct {
	kind   derivedKind
	rep    api.Representation
	coding api.Compression
	single bool // a form of one object, not of a list
	// limit and from are the size and the first key of a page.
	limit     int
	from      string
	resource  *Resource
	namespace string
	// key is that of the object, or the variant of a selection.
	key string
}

// place is where what is derived from a response's objects is kept: slots for
// the list or the object, and the version of its contents.
type place struct {
	slotOf slot // with kind, rep and coding left open
	id     uint64
}

func (p place) slot(k derivedKind) slot {
	s := p.slotOf
	s.kind = k
	return s
}

// derivedKind is what a slot holds.
type derivedKind uint8

func (k derivedKind) String() string {
	return [...]string{"row", "metadata", "rows", "metadata_list", "table_window", "body", "initial_events", "transcoded", "transcoded_list", "redacted", "redacted_list"}[k]
}

// ofList reports whether a form is that of a list, made from those of its
// objects.
func (k derivedKind) ofList() bool {
	return k == derivedRows || k == derivedMetas || k == derivedBody || k == derivedInitial || k == derivedTranscodedAll || k == derivedRedactedAll
}

// derivedEntry is what is in a slot. It is immutable.
type derivedEntry struct {
	slot slot
	// id says of which version of the object (its ID) or of the collection (its
	// view's Content) value was made.
	id    uint64
	value any
}

// making is a value being made; its fields are set when done is closed.
type making struct {
	done  chan struct{}
	entry *derivedEntry
	err   error
}

// An ETag names the exact bytes of a response: the process (so that versions of
// different upstreams, or of one before and after it was restored from a backup,
// never meet), the state of the collection or the object, the version that a
// list reports and which of the objects it has, the representation with the coding
// that the client accepts, and for tables their columns, which an upstream of another
// release may change, and the moment from which on they read as they do.
//
// Responses are "no-cache, private": browsers may keep them and must ask before
// they use them again, with the ETag. That question is authorized like any other
// read, so a 304 reveals nothing that a 200 would not. There is no Vary for
// Accept, as upstream has none: the ETags of two representations differ, so one
// is never confirmed in the place of another.
type tagger struct {
	process string
	start   time.Time
	seed    maphash.Seed // of the hashes of scopes
}

// Frames are what a watch sends at once, in pieces. Whoever writes to many watches uses
// the same Frames again for each.
type Frames struct {
	pieces encoding.Pieces
	// sent is Watch.sent when the frames are.
	sent compressedStream
}

// List are the pieces in their order, to be written before the Frames are used again.
func (f *Frames) List() [][]byte { return f.pieces.List }

func (f *Frames) reset() { f.pieces.List, f.pieces.Buf = f.pieces.List[:0], f.pieces.Buf[:0] }

const (
	derivedRow           derivedKind = iota // *table.Row of an object
	derivedMetadata                         // []byte, metadata of a custom resource's object
	derivedRows                             // []*table.Row of a list
	derivedMetas                            // [][]byte of a list
	derivedWindow                           // tableWindow of a list or an object
	derivedBody                             // *compressed, items of a list or an object
	derivedInitial                          // *compressed, initial events of a watch
	derivedTranscoded                       // transcodedObject of an object
	derivedTranscodedAll                    // []transcodedObject of a list
	derivedRedacted                         // *object.Object, redacted
	derivedRedactedAll                      // []*object.Object of a list
	derivedKinds
)

// derivedMetrics count the lookups of derived forms.
type derivedMetrics struct {
	lookups *prometheus.CounterVec
	results [derivedKinds][2]prometheus.Counter // misses, hits
}

// metrics are those of a Renderer. The handles of the usual series are looked up once.
type metrics struct {
	bytes   *prometheus.CounterVec
	bodies  [len(framings)][3][3]prometheus.Counter // by encoding, transform, coding
	size    prometheus.Collector
	max     prometheus.Collector
	derived *derivedMetrics
}

// compressedStream is what the end of a compressed watch must say of all before it.
type compressedStream struct {
	begun bool // the head was sent
	crc   uint32
	raw   uint32 // length before compression, modulo 2^32
}
