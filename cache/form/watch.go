package form

import (
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

// Collection is what a watch knows of the collection whose events it sends.
type Collection struct {
	Resource *Resource
	// Stored is the encoding in which its objects are kept.
	Stored api.Encoding
	Mux    *watchmux.Mux
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
