package form

import (
	"io"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/object"
)

// smallBody is the size up to which a body is made at once, in memory of its
// own; longer ones are written from the objects in chunks.
const smallBody = 64 << 10

// items are the objects of a body in a form.
type items struct {
	form   Form
	layout layout
	objs   Objects
	// pretty indents each item, behind prefix.
	pretty bool
	prefix string
	// event is where the frames of one are put together.
	event *Frames
}

// layout is how the objects of a body stand in it.
type layout uint8

const (
	layoutList   layout = iota // as the items of a list
	layoutSingle               // alone: the object of a get
	layoutEvents               // as the ADDED events with which a watch begins
)

// oneObject is the Objects of a get.
type oneObject struct{ o *object.Object }

func (oneObject) Len() int                                        { return 1 }
func (s oneObject) Each(visit func(i int, o *object.Object) bool) { visit(0, s.o) }

// sliceOfObjects are Objects in an order of their own.
type sliceOfObjects []*object.Object

func (s sliceOfObjects) Len() int { return len(s) }

func (s sliceOfObjects) Each(visit func(i int, o *object.Object) bool) {
	for i, o := range s {
		if !visit(i, o) {
			return
		}
	}
}

// separator is what stands between two items.
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

// size is the length of item i, or what is known of it at least, with exact unset.
func (t *items) size(i int, o *object.Object) (n int, exact bool) {
	if t.layout == layoutSingle {
		n, exact = t.form.singleSize(o)
	} else {
		n, exact = t.form.itemSize(i, o)
	}
	return n, exact && !t.pretty
}

// write writes item i without its separator.
func (t *items) write(w *chunks, i int, o *object.Object) {
	switch {
	case t.pretty:
		writePretty(w, t.prefix, func(w *chunks) { t.writeCompact(w, i, o) })
	case t.layout == layoutList:
		t.form.item(w, i, o)
	default:
		t.writeCompact(w, i, o)
	}
}

func (t *items) writeCompact(w *chunks, i int, o *object.Object) {
	switch t.layout {
	case layoutList:
		t.form.item(w, i, o)
	case layoutSingle:
		t.form.single(w, o)
	case layoutEvents:
		t.event.reset()
		// What could fail was done when the form was prepared.
		_ = t.form.event(t.event, api.Added, i, o, time.Time{})
		for _, frame := range t.event.pieces.List {
			w.write(frame)
		}
	}
}

// exceeds reports whether the items are more than threshold bytes.
func (t *items) exceeds(threshold int64) bool {
	total := int64(0)
	t.objs.Each(func(i int, o *object.Object) bool {
		n, _ := t.size(i, o)
		total += int64(n)
		return total <= threshold
	})
	return total > threshold
}

// subject is what is answered with: a list or, for a get, one object.
type subject struct {
	list *List
	one  *object.Object
}

// place is where what is derived for the answer is kept.
func (s subject) place(res *Resource) place {
	if s.one != nil {
		return place{slotOf: slot{single: true, resource: res, key: s.one.Key}, id: s.one.ID}
	}
	return s.list.place(res)
}

// tag is the ETag of the answer as it reads at moment.
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

// items are the objects of the answer.
func (s subject) items(f Form) items {
	t := items{form: f, pretty: f.common().rep.Pretty}
	if s.one != nil {
		t.layout, t.objs = layoutSingle, oneObject{s.one}
		return t
	}
	t.objs, t.prefix = s.list.Objects, prettyItemPrefix
	return t
}

// respond answers with a body, or with 304 to a client that has it. The ETag of a table
// is known only with the moment it is written for, which often takes no look at the rows.
func (r *Renderer) respond(f Form, s subject, client Client) (*api.Response, error) {
	p := s.place(f.common().res)
	if client.IfNoneMatch != "" {
		if moment, known := f.moment(p); known {
			if tag := s.tag(f, &client, moment); matchesTag(client.IfNoneMatch, tag) {
				return notModified(tag), nil
			}
		}
	}
	items := s.items(f)
	var err error
	if items.objs, err = f.prepare(p, items.objs); err != nil {
		return nil, err
	}
	moment, _ := f.moment(p)
	tag := s.tag(f, &client, moment)
	if matchesTag(client.IfNoneMatch, tag) {
		return notModified(tag), nil
	}
	b := &body{r: r, subject: s, coding: client.Compression, items: items}
	b.measure()
	b.frame()
	return b.answer(tag)
}

// notModified is the answer to a client that has the response already.
func notModified(tag string) *api.Response {
	return &api.Response{Status: 304, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Etag", Value: tag},
	}}
}

// body is the body of a get or a list that is not compressed. It is written once.
type body struct {
	subject
	r      *Renderer
	coding api.Compression // what the client accepts
	items  items
	head   []byte
	tail   []byte
	// size is that of the items with their separators, at least, or exactly with exact.
	size  int
	exact bool
}

// measure finds the size of the items.
func (b *body) measure() {
	if b.one != nil {
		b.size, b.exact = b.items.size(0, b.one)
		return
	}
	f, size, exact := b.items.form, 0, !b.items.pretty
	b.items.objs.Each(func(i int, o *object.Object) bool {
		n, known := f.itemSize(i, o)
		size += n
		exact = exact && known
		return true
	})
	b.size, b.exact = size+max(0, b.items.objs.Len()-1)*len(b.items.separator()), exact
}

// frame finds what comes before and after the items.
func (b *body) frame() {
	f, n := b.items.form, b.items.objs.Len()
	if b.one != nil {
		b.head, b.tail = f.singleFrame(b.one)
	} else {
		b.head, b.tail = f.frame(b.list, n, b.size)
		switch {
		case b.list.Counts == nil:
		case f.common().rep.Encoding == api.CBOR:
			b.head = cbor.WithListMember(b.head, "kubeweir", b.list.Counts)
		default:
			b.head, b.tail = withCounts(b.head, b.tail, b.list.Counts)
		}
	}
	switch {
	case !b.items.pretty:
	case len(b.head) == 0: // an object alone stands at the left, and no line ends behind it
		b.tail = nil
	default:
		b.items.prefix = prettyItemPrefix
		b.head, b.tail = prettyFrame(b.head, b.tail, n)
	}
}

// answer chooses between a body at once, in chunks, and compressed.
func (b *body) answer(tag string) (*api.Response, error) {
	rep := b.items.form.common().rep
	header := make(api.Header, 0, 8)
	header.Add("Cache-Control", api.CacheControl)
	header.Add("Content-Type", rep.Encoding.MediaType())
	header.Add("Etag", tag)
	resp := &api.Response{Status: 200, Header: header, Length: -1}
	if rep.YAML {
		return b.yaml(resp)
	}
	if b.exact {
		resp.Length = int64(len(b.head) + b.size + len(b.tail))
	}
	switch {
	case !b.mayCompress():
	case b.atLeast() > api.CompressionThreshold:
		return b.compressed(resp)
	case !b.exact:
		whole := b.bytes()
		if len(whole) > api.CompressionThreshold {
			return b.compressed(resp)
		}
		resp.Body, resp.Length = whole, int64(len(whole))
	}
	if resp.Body == nil && b.verbatim() != nil {
		resp.BodyTo, resp.Ready = b, true
		return resp, nil
	}
	if resp.Body == nil && b.atLeast() <= smallBody && (b.exact || b.items.objs.Len() <= 16) {
		resp.Body = b.bytes()
		resp.Length = int64(len(resp.Body))
	}
	if resp.Body != nil {
		b.r.metrics.wrote(rep, api.Identity, resp.Length)
		return resp, nil
	}
	resp.BodyTo, resp.Ready = b, true
	return resp, nil
}

func (b *body) compressed(resp *api.Response) (*api.Response, error) {
	c := b.items.form.common()
	pieces, err := b.r.compress(&b.items, b.place(c.res), b.coding)
	if err != nil {
		return nil, err
	}
	z := &compressedBody{r: b.r, rep: c.rep, coding: b.coding, items: pieces}
	z.separator = b.r.coder.literal(b.coding, b.items.separator())
	z.before, z.after = b.r.coder.enclose(b.coding, b.head, b.tail, pieces)
	resp.Header.Add("Content-Encoding", b.coding.String())
	resp.Header.Add("Vary", "Accept-Encoding")
	resp.BodyTo, resp.Ready, resp.Length = z, true, int64(len(z.before)+len(z.after))+pieces.size
	return resp, nil
}

func (b *body) atLeast() int { return len(b.head) + b.size + len(b.tail) }

func (b *body) mayCompress() bool {
	return b.coding != api.Identity && (!b.exact || b.atLeast() > api.CompressionThreshold)
}

// bytes is the whole body.
func (b *body) bytes() []byte {
	c := chunks{buf: make([]byte, 0, b.atLeast())}
	b.writeTo(&c)
	return c.buf
}

// verbatim are the bytes of one object, where the body is those between head and tail.
func (b *body) verbatim() []byte {
	if b.one == nil || !b.exact {
		return nil
	}
	return b.items.form.verbatim(b.one)
}

// writeVerbatim leaves collecting the parts to w.
func (b *body) writeVerbatim(w io.Writer, object []byte) (written int64, err error) {
	for _, p := range [][]byte{b.head, object, b.tail} {
		n, err := w.Write(p)
		if written += int64(n); err != nil {
			return written, err
		}
	}
	b.r.metrics.wrote(b.items.form.common().rep, api.Identity, written)
	return written, nil
}

// WriteTo implements io.WriterTo.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if object := b.verbatim(); object != nil {
		return b.writeVerbatim(w, object)
	}
	buf := b.r.buffers.get()
	defer b.r.buffers.put(buf)
	c := chunksTo(w, *buf)
	b.writeTo(&c)
	c.flush()
	b.r.metrics.wrote(b.items.form.common().rep, api.Identity, c.written)
	return c.written, c.err
}

func (b *body) writeTo(c *chunks) {
	c.write(b.head)
	separator := b.items.separator()
	b.items.objs.Each(func(i int, o *object.Object) bool {
		if i > 0 {
			c.writeString(separator)
		}
		b.items.write(c, i, o)
		return c.err == nil
	})
	c.write(b.tail)
}

// compressedBody is a compressed body. It is written once.
type compressedBody struct {
	r             *Renderer
	rep           api.Representation
	coding        api.Compression
	before, after []byte
	separator     []byte
	items         *compressed
}

// WriteTo implements io.WriterTo.
func (z *compressedBody) WriteTo(w io.Writer) (int64, error) {
	buf := z.r.buffers.get()
	defer z.r.buffers.put(buf)
	c := chunksTo(w, *buf)
	c.write(z.before)
	for i := range z.items.pieces {
		if i > 0 {
			c.write(z.separator)
		}
		c.refer(z.items.pieces[i].data)
	}
	c.write(z.after)
	c.flush()
	z.r.metrics.wrote(z.rep, z.coding, c.written)
	return c.written, c.err
}
