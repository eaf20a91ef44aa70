package form

import (
	"math"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

// youngVariant is the variant of a frame that is right now, for an event of an age; ok is false of
// old ones. Times in objects are whole seconds, so all that is rendered within one second has the
// same ages.
func youngVariant(now time.Time, age int64) (variant uint8, ok bool) {
	return uint8(now.Unix()), age < youngFrames
}

// Watch makes the body of one watch: Begin and some Added or Event, or else one of
// Pieces, Bookmark, Error and End, put what is to be written next into Frames, and Sent
// is told when that was written. It is not safe for concurrent use.
type Watch struct {
	r      *Renderer
	form   Form
	stored api.Encoding
	mux    *watchmux.Mux
	// message begins a message of size bytes; nil for a stream.
	message func(dst []byte, size int) []byte
	// coding is that of the body; it does not change once there are events. Of a
	// compressed one sent is what was sent so far, and pieces are the initial events
	// still to be.
	coding api.Compression
	sent   compressedStream
	pieces []piece
}

// Begin empties f for what the watch sends next.
func (w *Watch) Begin(f *Frames) {
	f.reset()
	f.sent = w.sent
	if w.coding == api.Gzip && !f.sent.begun {
		f.sent.begun = true
		f.pieces.Make(func(b []byte) []byte { return append(b, gzipHeader...) })
	}
}

// plainEvent appends an event of a stream that is not compressed.
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
		return join(own.pieces.List), nil
	})
	if err != nil {
		return err
	}
	f.pieces.List = append(f.pieces.List, frame)
	return nil
}

// restamped appends a delivery whose object may be the state before the event: an
// object that leaves the selector is sent as it last matched, with the version of the
// change.
func (w *Watch) restamped(f *Frames, d watchmux.Delivery, now time.Time) error {
	o, err := d.Object.AtRV(w.stored, d.RV)
	if err != nil {
		return err
	}
	return w.form.event(f, d.Type, 0, o, now)
}

// openMessage leaves room for the head of the event that is appended next. An event in
// a message is the same pieces as that of a stream, behind a head of their size: what is
// shared is shared by both.
func (w *Watch) openMessage(f *Frames) (head int) {
	if w.message == nil {
		return 0
	}
	f.pieces.List = append(f.pieces.List, nil)
	return len(f.pieces.List) - 1
}

// closeMessage completes the event that was appended since openMessage.
func (w *Watch) closeMessage(f *Frames, head int) {
	if w.message == nil || len(f.pieces.List) == head+1 {
		return // nothing was appended: an error, which is told instead
	}
	f.pieces.List[head+1] = f.pieces.List[head+1][w.form.common().enc.Delimiter():]
	size := 0
	for _, piece := range f.pieces.List[head+1:] {
		size += len(piece)
	}
	f.pieces.List[head] = f.pieces.Made(func(b []byte) []byte { return w.message(b, size) })
}

// youngFrames is how old an event may be whose rendered Tables are shared: the seconds in which
// they are made tell them apart for that long.
const youngFrames = int64(math.MaxUint8) * int64(time.Second)
