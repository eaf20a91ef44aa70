package form

import (
	"bytes"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// The frames of a watch are assembled from pieces. Objects in plain form are the upstream's own
// bytes between a head and a tail, so nothing is copied or cached. Other forms use bytes built once
// per event and shared by all watches.

// Collection describes the collection whose events a watch sends.
type Collection struct {
	Resource *Resource
	// Stored is the encoding of the collection's objects.
	Stored api.Encoding
	Mux    *watchmux.Mux
}

// Watch renders the body of one watch. Begin followed by any number of Added and Event, or one of
// Pieces, Bookmark, Error and End, put what is written next into Frames; Sent records that it was
// written. A Watch is not safe for concurrent use.
type Watch struct {
	r      *Renderer
	form   Form
	stored api.Encoding
	mux    *watchmux.Mux
	// message appends the header of a message of size bytes; nil for a stream.
	message func(dst []byte, size int) []byte
	// coding is the compression of the body. It does not change after the first event. sent is the
	// state of a compressed stream, and pieces are its remaining initial events.
	coding api.Compression
	sent   compressedStream
	pieces []piece
}

// youngFrames is the age, in nanoseconds, below which an event's rendered Tables are shared.
// Variants are seconds modulo 256, so they are unique for that long.
const youngFrames = int64(math.MaxUint8) * int64(time.Second)

// Watch returns the renderer of one watch in a representation; ok is false if the collection's
// objects cannot be rendered that way. For transports with messages, message appends the header of
// a message of size bytes, and the delimiters of a stream are omitted. message is nil for streams.
func (r *Renderer) Watch(c Collection, rep api.Representation, message func(dst []byte, size int) []byte) (w Watch, ok bool) {
	w = Watch{r: r, form: r.For(c.Resource, c.Stored, rep), stored: c.Stored, mux: c.Mux, message: message}
	return w, w.form != nil
}

// Header returns the response's header.
func (w *Watch) Header() api.Header {
	header := api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Content-Type", Value: w.form.common().enc.StreamType()},
	}
	if w.coding != api.Identity {
		header.Add("Content-Encoding", w.coding.String())
		header.Add("Vary", "Accept-Encoding")
	}
	return header
}

// Sent records that f was written.
func (w *Watch) Sent(f *Frames) {
	clear(f.pieces.List)
	w.sent = f.sent
}

// Added appends an initial event for o. The watch must not be compressed.
func (w *Watch) Added(f *Frames, o *object.Object, now time.Time) error {
	head := w.openMessage(f)
	err := w.form.event(f, api.Added, 0, o, now)
	w.closeMessage(f, head)
	return err
}

// Event appends the event of d.
func (w *Watch) Event(f *Frames, d watchmux.Delivery) error {
	if w.coding != api.Identity {
		return w.compressedEvent(f, d)
	}
	head := w.openMessage(f)
	err := w.plainEvent(f, d)
	w.closeMessage(f, head)
	return err
}

// Bookmark sets f to a bookmark at rv. end marks the end of the initial events. template is the
// object of a bookmark that the upstream sent, in the collection's encoding, from which the format
// is learned; nil if there was none yet.
func (w *Watch) Bookmark(f *Frames, template []byte, rv uint64, end bool) error {
	w.Begin(f)
	head := w.openMessage(f)
	if err := w.form.bookmark(f, w.template(template), rv, end, time.Now()); err != nil {
		return err
	}
	w.closeMessage(f, head)
	w.encode(f, head)
	return nil
}

func (w *Watch) template(raw []byte) encoding.BookmarkTemplate {
	codec := object.Codec(w.stored)
	if raw != nil {
		if t, err := codec.LearnBookmark(raw); err == nil {
			return t
		}
	}
	res := w.form.common().res
	return codec.NewBookmark(res.APIVersion, res.Kind, res.Custom)
}

// Error sets f to an ERROR event with err.
func (w *Watch) Error(f *Frames, err *apierrors.StatusError) {
	w.Begin(f)
	head := w.openMessage(f)
	enc, status := w.form.common().enc, api.StatusOf(err)
	enc.Event(&f.pieces, api.Error, status.APIVersion, status.Kind, enc.Status(status))
	w.closeMessage(f, head)
	w.encode(f, head)
}

// Begin empties f for the next write.
func (w *Watch) Begin(f *Frames) {
	f.reset()
	f.sent = w.sent
	if w.coding == api.Gzip && !f.sent.begun {
		f.sent.begun = true
		f.pieces.Make(func(b []byte) []byte { return append(b, pieces.GzipHeader...) })
	}
}

// plainEvent appends an event of an uncompressed stream.
func (w *Watch) plainEvent(f *Frames, d watchmux.Delivery) error {
	now := time.Now()
	variant, shared := uint8(0), true
	switch s := w.form.sharing(); {
	case s == byReference && d.Object.RV == d.RV:
		return w.form.event(f, d.Type, 0, d.Object, now)
	case s == alone:
		shared = false
	case s == cachedBriefly:
		// Times in objects are whole seconds, so everything rendered within one second shows the
		// same ages.
		variant, shared = uint8(now.Unix()), w.mux.Age(d.Event) < youngFrames
	}
	if !shared {
		return w.restamped(f, d, now)
	}
	frame, err := d.Frame(w.form.common().rep, variant, func(d watchmux.Delivery) ([]byte, error) {
		var own Frames
		if err := w.restamped(&own, d, now); err != nil {
			return nil, err
		}
		return bytes.Join(own.pieces.List, nil), nil
	})
	if err != nil {
		return err
	}
	f.pieces.List = append(f.pieces.List, frame)
	return nil
}

// restamped appends a delivery whose object may be the state before the event: an object that
// leaves the selector is sent as it last matched, with the version of the change.
func (w *Watch) restamped(f *Frames, d watchmux.Delivery, now time.Time) error {
	o, err := d.Object.AtRV(w.stored, d.RV)
	if err != nil {
		return err
	}
	return w.form.event(f, d.Type, 0, o, now)
}

// openMessage reserves room for the header of the next event's message, and returns the index at
// which the event begins. An event in a message consists of the same pieces as in a stream, behind
// a header with their size, so shared pieces serve both.
func (w *Watch) openMessage(f *Frames) (head int) {
	head = len(f.pieces.List)
	if w.message != nil {
		f.pieces.List = append(f.pieces.List, nil)
	}
	return head
}

// closeMessage completes the event that was appended since openMessage.
func (w *Watch) closeMessage(f *Frames, head int) {
	if w.message == nil || len(f.pieces.List) == head+1 {
		return // nothing was appended because of an error, which is sent instead
	}
	f.pieces.List[head+1] = f.pieces.List[head+1][w.form.common().enc.Delimiter():]
	size := 0
	for _, piece := range f.pieces.List[head+1:] {
		size += len(piece)
	}
	f.pieces.List[head] = f.pieces.Made(func(b []byte) []byte { return w.message(b, size) })
}

// A watch with initial events is compressed if the client accepts it and a list of the same objects
// would be compressed too. Its initial events are pieces (compress.go) shared by all watches of
// these objects. Later events are compressed once each and shared as well.
//
// In gzip the body is one member. Every piece and every event ends at a byte boundary with an empty
// stored block, at which decoders emit everything they have. The trailer and the checksum, combined
// from those of the pieces, follow when the watch ends.
//
// Rejected alternative: one gzip member per delivery, as kube-apiserver 1.37 sends. Some decoders
// stop after the first member, such as DecompressionStream in browsers and kube-rs. In zstd, for
// clients that prefer it, each piece and each event is a frame.

const (
	// usualCompression is a conservative compression ratio: pods of 5 KB and more become eight to
	// fifteen times smaller.
	usualCompression = 8
	// initialBytesAtOnce is how many bytes of initial events are written at a time.
	initialBytesAtOnce = 1 << 20
)

// CanCompress reports whether Compress can succeed: not in forms whose first event differs from the
// others.
func (w *Watch) CanCompress(coding api.Compression) bool {
	s := w.form.sharing()
	return coding != api.Identity && s != alone && s != cachedBriefly
}

// Compress makes the watch a compressed one that begins with ADDED events for the objects of
// initial, which must not be a page. size is the approximate size of the objects. Compress returns
// false if the objects are too small for a list of them to be compressed, or so large that the
// result would not fit the cache and be computed again for each watch. It must be called before all
// other methods.
func (w *Watch) Compress(initial *List, coding api.Compression, size int64) (ok bool, err error) {
	common := w.form.common()
	f := w.r.For(common.res, w.stored, common.rep) // a form for these objects alone
	p := common.place(initial)
	objs, err := f.prepare(p, initial.Objects)
	if err != nil {
		return false, err
	}
	exceeds := func(limit int64) bool {
		n, _ := sizeOf(f, objs, int(limit))
		return int64(n) > limit
	}
	most := w.r.derived.Budget() * usualCompression
	// The events are measured only if the objects do not settle it.
	if !exceeds(api.CompressionThreshold) || size > most && exceeds(most) {
		return false, nil
	}
	z, err := w.r.compress(&initialEvents{Form: f}, objs, p, derivedInitial, coding)
	if err != nil {
		return false, err
	}
	w.coding, w.pieces = coding, z.pieces
	return true, nil
}

// HasPieces reports whether initial events of a compressed watch remain to be sent.
func (w *Watch) HasPieces() bool { return len(w.pieces) > 0 }

// Pieces sets f to the next initial events of a compressed watch.
func (w *Watch) Pieces(f *Frames) {
	w.Begin(f)
	for n := 0; len(w.pieces) > 0 && n < initialBytesAtOnce; w.pieces = w.pieces[1:] {
		p := &w.pieces[0]
		f.pieces.List = append(f.pieces.List, p.data)
		f.sent.add(p.crc, p.shift, uint32(p.raw))
		n += len(p.data)
	}
	if len(w.pieces) == 0 {
		w.pieces = nil
	}
}

// Release drops the initial events that were not sent.
func (w *Watch) Release() { w.pieces = nil }

// compressedEvent appends an event of a compressed watch.
func (w *Watch) compressedEvent(f *Frames, d watchmux.Delivery) error {
	encoded, ok, err := d.CachedFrame(w.form.common().rep, uint8(w.coding), func(d watchmux.Delivery) ([]byte, error) {
		var own Frames
		if err := w.restamped(&own, d, time.Now()); err != nil {
			return nil, err
		}
		return w.r.coder.AppendFrame(nil, w.coding, pieces.MinCompressed, own.pieces.List), nil
	})
	if err != nil {
		return err
	}
	if !ok {
		// The watch lags far behind and reads retained events; these are not compressed per watch.
		first := len(f.pieces.List)
		if err := w.plainEvent(f, d); err != nil {
			return err
		}
		w.encode(f, first)
		return nil
	}
	f.addCompressed(encoded)
	return nil
}

// addCompressed appends a compressed event.
func (f *Frames) addCompressed(frame pieces.Frame) {
	f.pieces.List = append(f.pieces.List, frame.Data())
	f.sent.add(frame.CRC(), frame.Shift(), frame.Length())
}

// encode makes the frames of f from index first on, which belong to this watch alone, part of
// its compressed stream. Compressing them is not worth the cost.
func (w *Watch) encode(f *Frames, first int) {
	texts := f.pieces.List[first:]
	if w.coding == api.Identity || len(texts) == 0 {
		return
	}
	frame := f.pieces.Made(func(b []byte) []byte { return w.r.coder.AppendFrame(b, w.coding, math.MaxInt, texts) })
	clear(texts)
	f.pieces.List = f.pieces.List[:first]
	f.addCompressed(frame)
}

// End sets f to the end of the body: nothing if it is not compressed.
func (w *Watch) End(f *Frames) {
	if w.coding == api.Identity {
		f.reset()
		return
	}
	w.Begin(f)
	if w.coding != api.Gzip {
		return
	}
	f.pieces.Make(func(b []byte) []byte {
		return pieces.AppendTrailer(b, nil, f.sent.crc, f.sent.raw)
	})
}

// initialEvents renders objects as the initial ADDED events of a watch.
type initialEvents struct {
	Form
	frames Frames // of one event
}

func (f *initialEvents) separator() string { return "" }

func (f *initialEvents) item(w *chunks.Writer, i int, o *object.Object) {
	f.frames.reset()
	// Errors were reported when the form was prepared.
	_ = f.event(&f.frames, api.Added, i, o, time.Time{})
	for _, frame := range f.frames.List() {
		w.Copy(frame)
	}
}
