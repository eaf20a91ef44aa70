package cache

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// smallBody is the size up to which a body is made at once, in memory of its
// own; longer ones are written from the objects in chunks.
const smallBody = 64 << 10

// place is where what is derived from a response's objects is kept: slots for
// the selection or the object, and the version of its contents.
type place struct {
	slotOf slot // with kind, rep and coding left open
	id     uint64
}

func (p *place) slot(k derivedKind) slot {
	s := p.slotOf
	s.kind = k
	return s
}

// render answers a list with a selection.
func (r *Reader) render(c readable, req *ReadRequest, sel *selection) (*api.Response, error) {
	p := place{
		slotOf: slot{resource: c.Resource(), namespace: sel.namespace, from: sel.from, limit: sel.limit, key: sel.variant},
		id:     sel.view.Content(),
	}
	f, tag, err := r.prepare(c, req, sel, &p, func(moment time.Time) string {
		return r.tags.list(sel, req.Rep, req.Compression, moment)
	})
	if err != nil {
		return nil, err
	}
	if f == nil {
		return notModified(tag), nil
	}
	if f.kind == formTable && f.res.Printer.Traits().Sorted {
		sel = f.sortRows(sel)
	}
	b := &readBody{r: r, form: f, set: sel}
	b.measure()
	meta := sel.meta()
	b.head, b.tail = f.frame(c, &meta, sel.len(), b.items)
	return r.respond(req, b, &p, tag)
}

// object answers a get with an object.
func (r *Reader) object(c readable, req *ReadRequest, o *object.Object) (*api.Response, error) {
	p := place{slotOf: slot{single: true, resource: c.Resource(), key: o.Key}, id: o.ID}
	f, tag, err := r.prepare(c, req, oneObject{o}, &p, func(moment time.Time) string {
		return r.tags.object(o, req.Rep, req.Compression, moment)
	})
	if err != nil {
		return nil, err
	}
	if f == nil {
		return notModified(tag), nil
	}
	f.single = true
	b := &readBody{r: r, form: f, set: oneObject{o}}
	b.measure()
	b.head, b.tail = f.singleFrame(o)
	return r.respond(req, b, &p, tag)
}

// prepare makes the form of a response and its ETag; no form when the client has
// the response already. The ETag of a table is known only with the moment it is
// written for, which often takes no form to find out.
func (r *Reader) prepare(c readable, req *ReadRequest, set objectSet, p *place, tagAt func(moment time.Time) string) (*form, string, error) {
	moment, known := r.knownMoment(req.Rep, p)
	if known {
		if tag := tagAt(moment); matchesTag(req.IfNoneMatch, tag) {
			return nil, tag, nil
		}
	}
	f, err := r.newForm(c, req.Rep, set, p)
	if err != nil {
		return nil, "", err
	}
	tag := tagAt(f.moment)
	if matchesTag(req.IfNoneMatch, tag) {
		return nil, tag, nil
	}
	return f, tag, nil
}

// notModified is the answer to a client that has the response already.
func notModified(tag string) *api.Response {
	return &api.Response{Status: 304, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Etag", Value: tag},
	}}
}

// respond chooses between a body at once, in chunks, and compressed.
func (r *Reader) respond(req *ReadRequest, b *readBody, p *place, tag string) (*api.Response, error) {
	header := make(api.Header, 0, 8)
	header.Add("Cache-Control", api.CacheControl)
	header.Add("Content-Type", req.Rep.Encoding.MediaType())
	header.Add("Etag", tag)
	resp := &api.Response{Status: 200, Header: header, Length: -1}
	if b.exact {
		resp.Length = int64(len(b.head) + b.items + len(b.tail))
	}
	switch {
	case !b.mayCompress(req.Compression):
	case b.atLeast() > api.CompressionThreshold:
		return r.respondCompressed(req, b, p, resp)
	case !b.exact:
		whole := b.bytes()
		if len(whole) > api.CompressionThreshold {
			return r.respondCompressed(req, b, p, resp)
		}
		resp.Body, resp.Length = whole, int64(len(whole))
	}
	if resp.Body == nil && b.verbatim() {
		resp.BodyTo, resp.Ready = b, true
		return resp, nil
	}
	if resp.Body == nil && b.atLeast() <= smallBody && (b.exact || b.set.len() <= 16) {
		resp.Body = b.bytes()
		resp.Length = int64(len(resp.Body))
	}
	if resp.Body != nil {
		r.metrics.wrote(req.Rep, api.Identity, resp.Length)
		return resp, nil
	}
	resp.BodyTo, resp.Ready = b, true
	return resp, nil
}

func (r *Reader) respondCompressed(req *ReadRequest, b *readBody, p *place, resp *api.Response) (*api.Response, error) {
	items, err := r.compress(b.form, *p, req.Compression, b.set)
	if err != nil {
		return nil, forward(reason.Unrenderable, err)
	}
	z := &compressedBody{r: r, rep: req.Rep, coding: req.Compression, items: items, separator: r.coder.literal(req.Compression, b.form.separator())}
	z.before, z.after = r.coder.enclose(req.Compression, b.head, b.tail, items)
	resp.Header.Add("Content-Encoding", req.Compression.String())
	resp.Header.Add("Vary", "Accept-Encoding")
	resp.BodyTo, resp.Ready, resp.Length = z, true, int64(len(z.before)+len(z.after))+items.size
	return resp, nil
}

// readBody is a body that is not compressed. It is written once.
type readBody struct {
	r    *Reader
	form *form
	set  objectSet
	head []byte
	tail []byte
	// items is the size of the items with their separators, at least, or exactly
	// with exact.
	items int
	exact bool
}

// measure finds the size of the items.
func (b *readBody) measure() {
	b.exact = true
	b.set.each(func(i int, o *object.Object) {
		n, exact := b.form.size(i, o)
		b.items += n
		b.exact = b.exact && exact
	})
	b.items += max(0, b.set.len()-1) * len(b.form.separator())
}

func (b *readBody) atLeast() int { return len(b.head) + b.items + len(b.tail) }

func (b *readBody) mayCompress(coding api.Compression) bool {
	return coding != api.Identity && (!b.exact || b.atLeast() > api.CompressionThreshold)
}

// bytes is the whole body.
func (b *readBody) bytes() []byte {
	c := chunks{buf: make([]byte, 0, b.atLeast())}
	b.writeTo(&c)
	return c.buf
}

// verbatim says whether the body is the bytes of one object between head and tail.
func (b *readBody) verbatim() bool { return b.form.single && b.exact && b.form.verbatim() }

// writeVerbatim leaves collecting the parts to w.
func (b *readBody) writeVerbatim(w io.Writer) (written int64, err error) {
	for _, p := range [][]byte{b.head, b.set.(oneObject).o.Raw, b.tail} {
		n, err := w.Write(p)
		if written += int64(n); err != nil {
			return written, err
		}
	}
	b.r.metrics.wrote(b.form.rep, api.Identity, written)
	return written, nil
}

// WriteTo implements io.WriterTo.
func (b *readBody) WriteTo(w io.Writer) (int64, error) {
	if b.verbatim() {
		return b.writeVerbatim(w)
	}
	buf := b.r.buffers.get()
	defer b.r.buffers.put(buf)
	c := chunksTo(w, *buf)
	b.writeTo(&c)
	c.flush()
	b.r.metrics.wrote(b.form.rep, api.Identity, c.written)
	return c.written, c.err
}

func (b *readBody) writeTo(c *chunks) {
	c.write(b.head)
	separator := b.form.separator()
	b.set.each(func(i int, o *object.Object) {
		if c.err != nil {
			return
		}
		if i > 0 {
			c.writeString(separator)
		}
		b.form.write(c, i, o)
	})
	c.write(b.tail)
}

// compressedBody is a compressed body. It is written once.
type compressedBody struct {
	r             *Reader
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

// sortRows orders the rows of a list by their sort keys.
func (f *form) sortRows(sel *selection) *selection {
	order := make([]int, sel.len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(f.rows[a].SortKey(), f.rows[b].SortKey()) })
	sorted := *sel
	objs := sel.all()
	rows, metadata := f.rows, f.metadata
	sorted.picked, sorted.objs = true, make([]*object.Object, len(order))
	f.rows = make([]*table.Row, len(order))
	if metadata != nil {
		f.metadata = make([][]byte, len(order))
	}
	for to, from := range order {
		sorted.objs[to], f.rows[to] = objs[from], rows[from]
		if metadata != nil {
			f.metadata[to] = metadata[from]
		}
	}
	return &sorted
}
