package form

import (
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/object"
)

// items are the objects of a body together with their form.
type items struct {
	form   Form
	layout layout
	objs   Objects
	// pretty indents each item behind prefix.
	pretty bool
	prefix string
	// event is a scratch buffer for the frames of one event.
	event *Frames
}

// layout is the arrangement of the objects of a body.
type layout uint8

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

// separator returns the bytes between two items.
func (t *items) separator() string {
	separator := t.form.common().enc.Separator()
	switch {
	case t.layout == layoutEvents:
		return ""
	case t.pretty:
		return separator + "\n" + prettyItemPrefix
	}
	return separator
}

// size returns the length of item i. If exact is false, n is a lower bound.
func (t *items) size(i int, o *object.Object) (n int, exact bool) {
	if t.layout == layoutSingle {
		n, exact = t.form.singleSize(o)
	} else {
		n, exact = t.form.itemSize(i, o)
	}
	return n, exact && !t.pretty
}

// write writes item i without its separator.
func (t *items) write(w *chunks.Writer, i int, o *object.Object) {
	switch {
	case t.pretty:
		writePretty(w, t.prefix, func(w *chunks.Writer) { t.writeCompact(w, i, o) })
	case t.layout == layoutList:
		t.form.item(w, i, o)
	default:
		t.writeCompact(w, i, o)
	}
}

func (t *items) writeCompact(w *chunks.Writer, i int, o *object.Object) {
	switch t.layout {
	case layoutList:
		t.form.item(w, i, o)
	case layoutSingle:
		t.form.single(w, o)
	case layoutEvents:
		t.event.reset()
		// Errors were reported when the form was prepared.
		_ = t.form.event(t.event, api.Added, i, o, time.Time{})
		for _, frame := range t.event.pieces.List {
			w.Copy(frame)
		}
	}
}

// total returns the size of all items, without separators. If exact is false, it is a lower bound.
func (t *items) total() (size int, exact bool) {
	exact = true
	t.objs.Each(func(i int, o *object.Object) bool {
		n, known := t.size(i, o)
		size += n
		exact = exact && known
		return true
	})
	return size, exact
}

// exceeds reports whether the items are larger than threshold bytes.
func (t *items) exceeds(threshold int64) bool {
	total := int64(0)
	t.objs.Each(func(i int, o *object.Object) bool {
		n, _ := t.size(i, o)
		total += int64(n)
		return total <= threshold
	})
	return total > threshold
}

// body is the uncompressed body of a get or list. WriteTo may be called once.
type body struct {
	subject
	r      *Renderer
	coding api.Compression // accepted by the client
	items  items
	head   []byte
	tail   []byte
	// size is the size of the items with their separators; a lower bound unless exact.
	size  int
	exact bool
}

func (b *body) atLeast() int { return len(b.head) + b.size + len(b.tail) }

// bytes returns the whole body.
func (b *body) bytes() []byte {
	c := chunks.Writer{Buf: make([]byte, 0, b.atLeast())}
	b.writeTo(&c)
	return c.Buf
}

func (b *body) writeTo(c *chunks.Writer) {
	c.Copy(b.head)
	separator := b.items.separator()
	b.items.objs.Each(func(i int, o *object.Object) bool {
		if i > 0 {
			c.CopyString(separator)
		}
		b.items.write(c, i, o)
		return c.Err == nil
	})
	c.Copy(b.tail)
}

const (
	layoutList   layout = iota // as items of a list
	layoutSingle               // alone, as the object of a get
	layoutEvents               // as the initial ADDED events of a watch
)

// subject is the content of a response: a list or, for a get, one object.
type subject struct {
	list *List
	one  *object.Object
}

// place returns where values derived for the response are cached.
func (s subject) place(res *Resource) place {
	if s.one != nil {
		return place{slotOf: slot{single: true, resource: res, key: s.one.Key}, id: s.one.ID}
	}
	return s.list.place(res)
}

// tag returns the ETag of the response rendered at moment.
func (s subject) tag(f Form, client *Client, moment time.Time) (tag string) {
	c := f.common()
	if s.one != nil {
		tag = c.r.tags.object(s.one, c.rep, client.Compression, moment)
	} else {
		tag = c.r.tags.list(s.list, c.rep, client.Compression, moment)
	}
	if c.rep.Transform == api.Table {
		tag = c.r.tags.columns(tag, c.res.Printer.Columns())
	}
	return tag
}

// items returns the objects of the response.
func (s subject) items(f Form) items {
	t := items{form: f, pretty: f.common().rep.Pretty}
	if s.one != nil {
		t.layout, t.objs = layoutSingle, oneObject{s.one}
		return t
	}
	t.objs, t.prefix = s.list.Objects, prettyItemPrefix
	return t
}
