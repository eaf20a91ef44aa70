package form

import (
	"bytes"
	"math"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/watchmux"
)

// youngVariant returns the variant under which a frame rendered now is shared, for an event of the
// given age in nanoseconds. ok is false for old events. Times in objects are whole seconds, so
// everything rendered within one second shows the same ages.
func youngVariant(now time.Time, age int64) (variant uint8, ok bool) {
	return uint8(now.Unix()), age < youngFrames
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
	case s == referring && d.Object.RV == d.RV:
		return w.form.event(f, d.Type, 0, d.Object, now)
	case s == alone:
		shared = false
	case s == keptYoung:
		variant, shared = youngVariant(now, w.mux.Age(d.Event))
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
// which the event begins. An event in a message
// consists of the same pieces as in a stream, behind a header with their size, so shared pieces
// serve both.
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

// youngFrames is the age, in nanoseconds, below which an event's rendered Tables are shared.
// Variants are seconds modulo 256, so they are unique for that long.
const youngFrames = int64(math.MaxUint8) * int64(time.Second)
