package form

import (
	"io"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/object"
)

// smallBody is the size, in bytes, up to which a body is built in one buffer of its own. Larger
// bodies are written from the objects in chunks.
const smallBody = 64 << 10

// respond builds the response for s: the body, or 304 if the client already has it. The ETag of a
// Table depends on the moment it is rendered for; that moment is often known without looking at the
// rows, so a 304 is tried before the items are prepared.
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
	if s.one != nil { // perhaps another one, such as the redacted one
		items.objs.Each(func(_ int, o *object.Object) bool {
			s.one = o
			return false
		})
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

// notModified returns the 304 response with the given ETag.
func notModified(tag string) *api.Response {
	return &api.Response{Status: 304, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Etag", Value: tag},
	}}
}

// measure sets the size of the items, and whether it is exact.
func (b *body) measure() {
	b.size, b.exact = b.items.total()
	b.size += max(0, b.items.objs.Len()-1) * len(b.items.separator())
	b.exact = b.exact && !b.items.pretty
}

// frame sets the bytes before and after the items.
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
	case len(b.head) == 0: // a single object is not indented, and no newline follows it
		b.tail = nil
	default:
		b.items.prefix = prettyItemPrefix
		b.head, b.tail = prettyFrame(b.head, b.tail, n)
	}
}

// answer chooses how the body is written: in one buffer, in chunks, or compressed.
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
	z.separator = b.r.coder.Literal(b.coding, b.items.separator())
	z.before, z.after = b.r.coder.Enclose(b.coding, b.head, b.tail, pieces.raw, pieces.crc)
	resp.Header.Add("Content-Encoding", b.coding.String())
	resp.Header.Add("Vary", "Accept-Encoding")
	resp.BodyTo, resp.Ready, resp.Length = z, true, int64(len(z.before)+len(z.after))+pieces.size
	return resp, nil
}

func (b *body) mayCompress() bool {
	return b.coding != api.Identity && (!b.exact || b.atLeast() > api.CompressionThreshold)
}

// verbatim returns the stored bytes of a get's object if the body is exactly those bytes between
// head and tail, otherwise nil.
func (b *body) verbatim() []byte {
	if b.one == nil || !b.exact {
		return nil
	}
	return b.items.form.verbatim(b.one)
}

// writeVerbatim writes head, object and tail to w without copying them into a buffer.
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
	buf := b.r.buffers.Get()
	defer b.r.buffers.Put(buf)
	c := chunks.To(w, *buf)
	b.writeTo(&c)
	c.Flush()
	b.r.metrics.wrote(b.items.form.common().rep, api.Identity, c.Written)
	return c.Written, c.Err
}

// compressedBody is a compressed body. WriteTo may be called once.
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
	buf := z.r.buffers.Get()
	defer z.r.buffers.Put(buf)
	c := chunks.To(w, *buf)
	c.Copy(z.before)
	for i := range z.items.pieces {
		if i > 0 {
			c.Copy(z.separator)
		}
		c.Refer(z.items.pieces[i].data)
	}
	c.Copy(z.after)
	c.Flush()
	z.r.metrics.wrote(z.rep, z.coding, c.Written)
	return c.Written, c.Err
}
