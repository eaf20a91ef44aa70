package form

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// plain renders objects as they are: the bytes that the upstream sent.
type plain struct {
	base
	// around is enc's, cached to save a call per object of a list.
	around *encoding.Constants
}

func (f *plain) prepare(_ place, objs Objects) (Objects, error) { return objs, nil }

func (f *plain) frame(l *List, n, size int) (head, tail []byte) {
	meta := l.meta()
	if l.Shard != "" {
		// kube-apiserver sets it in this form only, and not in lists without a Go type.
		meta.ShardInfo = &metav1.ShardInfo{Selector: l.Shard}
	}
	return f.enc.List(encoding.ListType{APIVersion: l.APIVersion, Kind: l.Kind, Untyped: f.res.Custom}, &meta, n, size)
}

func (f *plain) itemSize(_ int, o *object.Object) (n int, exact bool) {
	open, rest := json.Item(o.Raw, o.ListOffset)
	n = len(open) + len(rest)
	if f.around == nil {
		n = f.enc.ItemSize(n)
	}
	return n, true
}

// item writes an object. The items of a typed list in JSON omit apiVersion and kind.
func (f *plain) item(w *chunks, _ int, o *object.Object) {
	if f.around == nil {
		f.itemHead(w, len(o.Raw))
		w.refer(o.Raw)
		return
	}
	open, rest := json.Item(o.Raw, o.ListOffset)
	w.writeString(open)
	w.refer(rest)
}

func (f *plain) singleFrame(o *object.Object) (head, tail []byte) {
	return f.enc.Body(f.res.APIVersion, f.res.Kind, len(o.Raw))
}

func (f *plain) singleSize(o *object.Object) (n int, exact bool) { return len(o.Raw), true }

func (f *plain) single(w *chunks, o *object.Object) { w.write(o.Raw) }

func (f *plain) verbatim(o *object.Object) []byte { return o.Raw }

func (f *plain) sharing() sharing {
	if f.around != nil {
		return referring
	}
	return kept
}

func (f *plain) event(fr *Frames, t api.EventType, _ int, o *object.Object, _ time.Time) error {
	if f.around != nil {
		f.around.Append(&fr.pieces, t, o.Raw)
		return nil
	}
	f.enc.Event(&fr.pieces, t, f.res.APIVersion, f.res.Kind, o.Raw)
	return nil
}

func (f *plain) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	message := fr.pieces.Made(func(b []byte) []byte { return t.AppendObject(b, rv, end) })
	f.enc.Event(&fr.pieces, api.Bookmark, f.res.APIVersion, f.res.Kind, message)
	return nil
}
