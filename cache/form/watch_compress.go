package form

import (
	"math"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

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
	return coding != api.Identity && s != alone && s != keptYoung
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
	kept, ok, err := d.KeptFrame(w.form.common().rep, uint8(w.coding), func(d watchmux.Delivery) ([]byte, error) {
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
	f.addCompressed(kept)
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
