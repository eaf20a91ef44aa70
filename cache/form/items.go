package form

import (
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/object"
)

// oneObject is the Objects of a get.
type oneObject struct{ o *object.Object }

func (oneObject) Len() int { return 1 }

func (s oneObject) Each(visit func(i int, o *object.Object) bool) { visit(0, s.o) }

// sliceOfObjects are Objects in an arbitrary order.
type sliceOfObjects []*object.Object

func (s sliceOfObjects) Len() int { return len(s) }

func (s sliceOfObjects) Each(visit func(i int, o *object.Object) bool) {
	for i, o := range s {
		if !visit(i, o) {
			return
		}
	}
}

// sizeOf returns the size of the items of objs, without separators, or at least limit+1 if it
// exceeds limit. If exact is false, it is a lower bound.
func sizeOf(f Form, objs Objects, limit int) (size int, exact bool) {
	exact = true
	objs.Each(func(i int, o *object.Object) bool {
		n, known := f.itemSize(i, o)
		size += n
		exact = exact && known
		return size <= limit
	})
	return size, exact
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
