package form

import (
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// The frames of a watch are put together from pieces: for objects as they are,
// the upstream's own bytes between a head and a tail, so that nothing is copied
// or kept; for transforms, bytes made once per event and shared.

// youngFrames is how old an event may be whose rendered Tables are shared: the seconds in which they are
// made tell them apart for that long.
const youngFrames = int64(math.MaxUint8) * int64(time.Second)

// youngVariant is the variant of a frame that is right now, for an event of an age; ok is false of old ones.
// Times in objects are whole seconds, so all that is rendered within one second has the same ages.
func youngVariant(now time.Time, age int64) (variant uint8, ok bool) {
	return uint8(now.Unix()), age < youngFrames
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

func join(frames [][]byte) []byte {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	joined := make([]byte, 0, n)
	for _, f := range frames {
		joined = append(joined, f...)
	}
	return joined
}

// Collection is what a watch knows of the collection whose events it sends.
type Collection struct {
	Resource *Resource
	// Stored is the encoding in which its objects are kept.
	Stored api.Encoding
	Mux    *watchmux.Mux
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

// Watch makes the body of a watch in a representation; ok is false if its objects cannot
// be given so. message makes each event a message, for transports that have such: it
// appends the head of one of size bytes, and what tells events apart in a stream is left
// out. It is nil for a stream.
func (r *Renderer) Watch(c Collection, rep api.Representation, message func(dst []byte, size int) []byte) (w Watch, ok bool) {
	w = Watch{r: r, form: r.For(c.Resource, c.Stored, rep), stored: c.Stored, mux: c.Mux, message: message}
	return w, w.form != nil
}

// Header is that of the response.
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

// Begin empties f for what the watch sends next.
func (w *Watch) Begin(f *Frames) {
	f.reset()
	f.sent = w.sent
	if w.coding == api.Gzip && !f.sent.begun {
		f.sent.begun = true
		f.pieces.Make(func(b []byte) []byte { return append(b, gzipHeader...) })
	}
}

// Sent says that f was written.
func (w *Watch) Sent(f *Frames) {
	clear(f.pieces.List)
	w.sent = f.sent
}

// Added appends an object that was there when the watch began. The watch is not
// compressed.
func (w *Watch) Added(f *Frames, o *object.Object, now time.Time) error {
	if w.message == nil {
		return w.form.event(f, api.Added, 0, o, now)
	}
	head := w.openMessage(f)
	err := w.form.event(f, api.Added, 0, o, now)
	w.closeMessage(f, head)
	return err
}

// Event appends an event.
func (w *Watch) Event(f *Frames, d watchmux.Delivery) error {
	if w.coding != api.Identity {
		return w.compressedEvent(f, d)
	}
	head := w.openMessage(f)
	err := w.plainEvent(f, d)
	w.closeMessage(f, head)
	return err
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

// Bookmark makes f a bookmark at rv; end marks the end of the initial events. template
// is the object of a bookmark of the upstream, in the encoding of the collection, nil before
// the first: the form of bookmarks is learned from it.
func (w *Watch) Bookmark(f *Frames, template []byte, rv uint64, end bool) error {
	w.Begin(f)
	head := w.openMessage(f)
	if err := w.form.bookmark(f, w.template(template), rv, end, time.Now()); err != nil {
		return err
	}
	w.closeMessage(f, head)
	w.encode(f)
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

// Error makes f the ERROR event of err.
func (w *Watch) Error(f *Frames, err *apierrors.StatusError) {
	w.Begin(f)
	head := w.openMessage(f)
	enc, status := w.form.common().enc, api.StatusOf(err)
	enc.Event(&f.pieces, api.Error, status.APIVersion, status.Kind, enc.Status(status))
	w.closeMessage(f, head)
	w.encode(f)
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
