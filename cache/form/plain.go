package form

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// plain is objects as they are: the bytes that the upstream sent.
type plain struct {
	base
	// around is that of enc. It spares each object of a list, and of a watch that begins
	// with one, a call.
	around *constants
}

func (f *plain) prepare(_ place, objs Objects) (Objects, error) { return objs, nil }

func (f *plain) frame(l *List, n, size int) (head, tail []byte) {
	meta := l.meta()
	if l.Shard != "" {
		// The only form that says it, as upstream; lists without a Go type do not.
		meta.ShardInfo = &metav1.ShardInfo{Selector: l.Shard}
	}
	return f.enc.listFrame(listType{apiVersion: l.APIVersion, kind: l.Kind, untyped: f.res.Custom}, &meta, n, size)
}

func (f *plain) itemSize(_ int, o *object.Object) (n int, exact bool) {
	n = object.JSONListItemSize(o)
	if f.around == nil {
		n = f.enc.itemSize(n)
	}
	return n, true
}

// item writes an object; the items of a typed list of JSON have no type of their own.
func (f *plain) item(w *chunks, _ int, o *object.Object) {
	if o.ListOffset > 0 {
		w.writeString("{")
		w.refer(o.Raw[o.ListOffset:])
		return
	}
	if f.around == nil {
		f.enc.itemHead(w, len(o.Raw))
	}
	w.refer(o.Raw)
}

func (f *plain) singleFrame(o *object.Object) (head, tail []byte) {
	return f.enc.objectFrame(f.res.APIVersion, f.res.Kind, len(o.Raw))
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
		f.around.append(fr, t, o.Raw)
		return nil
	}
	f.enc.event(fr, t, f.res.APIVersion, f.res.Kind, o.Raw)
	return nil
}

func (f *plain) bookmark(fr *Frames, t *object.BookmarkTemplate, rv uint64, end bool, _ time.Time) error {
	message := fr.made(func(b []byte) []byte { return t.AppendObject(b, rv, end) })
	f.enc.event(fr, api.Bookmark, f.res.APIVersion, f.res.Kind, message)
	return nil
}
