package form

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/object"
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
