package form

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/object"
)

// smallBody is the size, in bytes, up to which a body is built in one buffer of its own. Larger
// bodies are written from the objects in chunks.
const smallBody = 64 << 10

// List renders a list in form f: the body, or 304 if the client already has it. The ETag of a Table
// depends on the moment it is rendered for; that moment is often known without looking at the rows,
// so a 304 is tried before the items are prepared. The error names the object that cannot be
// rendered.
func (r *Renderer) List(f Form, l *List, client Client) (*api.Response, error) {
	c := f.common()
	p := c.place(l)
	if client.IfNoneMatch != "" {
		if moment, known := f.moment(p); known {
			if tag := r.tags.tag(c, l, client.Compression, moment); matchesTag(client.IfNoneMatch, tag) {
				return notModified(tag), nil
			}
		}
	}
	objs, err := f.prepare(p, l.Objects)
	if err != nil {
		return nil, err
	}
	moment, _ := f.moment(p)
	tag := r.tags.tag(c, l, client.Compression, moment)
	if matchesTag(client.IfNoneMatch, tag) {
		return notModified(tag), nil
	}
	b := &body{form: f, objs: objs}
	if c.rep.Pretty {
		b.form = indented(f)
	}
	n := objs.Len()
	b.size, b.exact = sizeOf(b.form, objs, math.MaxInt)
	b.size += max(0, n-1) * len(b.form.separator())
	b.head, b.tail = c.frame(l, n, b.size)
	return b.respond(p, tag, client.Compression)
}

// notModified returns the 304 response with the given ETag.
func notModified(tag string) *api.Response {
	return &api.Response{Status: 304, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Etag", Value: tag},
	}}
}

// frame returns the bytes before and after the n items of l, or the object of a get. size is the
// size of the items with their separators.
func (b *base) frame(l *List, n, size int) (head, tail []byte) {
	switch {
	case b.alone && b.rep.Pretty: // a single object is not indented, and no newline follows it
		return nil, nil
	case b.alone && b.partial():
		return b.enc.Body(encoding.PartialAPIVersion, encoding.PartialKind, size)
	case b.alone:
		return b.enc.Body(b.res.APIVersion, b.res.Kind, size)
	}
	meta := metav1.ListMeta{ResourceVersion: formatRV(l.RV), Continue: l.Continue, RemainingItemCount: l.RemainingItemCount}
	switch {
	case b.rep.Transform == api.Table:
		head, tail = table.Frame(b.res.Printer, &meta, n)
	case b.partial():
		// kube-apiserver encodes an empty list of items as null.
		head, tail = b.enc.List(encoding.ListType{APIVersion: encoding.PartialAPIVersion, Kind: encoding.PartialListKind, Null: true}, &meta, n, size)
	default:
		if l.Shard != "" && !b.res.Custom {
			// kube-apiserver sets it in this form only, and not in lists without a Go type.
			meta.ShardInfo = &metav1.ShardInfo{Selector: l.Shard}
		}
		head, tail = b.enc.List(encoding.ListType{APIVersion: l.APIVersion, Kind: l.Kind, Untyped: b.res.Custom}, &meta, n, size)
	}
	switch {
	case l.Counts == nil:
	case b.rep.Encoding == api.CBOR:
		head = cbor.WithListMember(head, "kubeweir", l.Counts)
	default:
		head, tail = withCounts(head, tail, l.Counts)
	}
	if b.rep.Pretty {
		return prettyFrame(head, tail, n)
	}
	return head, tail
}

// withCounts inserts counts into the metadata of a JSON list, which has a resourceVersion, too. The
// metadata is part of the head, or of the tail if the list's keys are sorted.
func withCounts(head, tail, counts []byte) (newHead, newTail []byte) {
	const metadata = `"metadata":{`
	insert := func(text []byte) []byte {
		return bytes.Replace(text, []byte(metadata), fmt.Appendf(nil, `%s"kubeweir":%s,`, metadata, counts), 1)
	}
	if bytes.Contains(head, []byte(metadata)) {
		return insert(head), tail
	}
	return head, insert(tail)
}

// body is the uncompressed body of a get or list. WriteTo may be called once.
type body struct {
	form Form
	objs Objects
	// head and tail are the bytes around the items.
	head, tail []byte
	// size is the size of the items with their separators; a lower bound unless exact.
	size  int
	exact bool
}

func (b *body) atLeast() int { return len(b.head) + b.size + len(b.tail) }

// respond returns the response and chooses how the body is written: in one buffer, in chunks, or
// compressed if the client accepts coding. p is where derived values of the body are cached.
func (b *body) respond(p place, tag string, coding api.Compression) (*api.Response, error) {
	c := b.form.common()
	header := make(api.Header, 0, 8)
	header.Add("Cache-Control", api.CacheControl)
	header.Add("Content-Type", c.rep.Encoding.MediaType())
	header.Add("Etag", tag)
	resp := &api.Response{Status: 200, Header: header, Length: -1}
	if c.rep.YAML {
		return b.yaml(resp, coding)
	}
	least := b.atLeast()
	var whole []byte
	switch {
	case coding != api.Identity && !b.exact && least <= api.CompressionThreshold,
		least <= smallBody && (b.exact && !c.alone || !b.exact && b.objs.Len() <= 16):
		whole = b.bytes()
		least = len(whole)
	}
	switch {
	case coding != api.Identity && least > api.CompressionThreshold:
		return b.compressed(resp, p, coding)
	case whole != nil:
		resp.Body, resp.Length = whole, int64(least)
		c.r.metrics.wrote(c.rep, api.Identity, resp.Length)
		return resp, nil
	case b.exact:
		resp.Length = int64(least)
	}
	resp.BodyTo, resp.Ready = b, true
	return resp, nil
}

func (b *body) compressed(resp *api.Response, p place, coding api.Compression) (*api.Response, error) {
	c := b.form.common()
	items, err := c.r.compress(b.form, b.objs, p, derivedBody, coding)
	if err != nil {
		return nil, err
	}
	z := &compressedBody{r: c.r, rep: c.rep, coding: coding, items: items}
	z.separator = c.r.coder.Literal(coding, b.form.separator())
	z.before, z.after = c.r.coder.Enclose(coding, b.head, b.tail, items.raw, items.crc)
	resp.Header.Add("Content-Encoding", coding.String())
	resp.Header.Add("Vary", "Accept-Encoding")
	resp.BodyTo, resp.Ready, resp.Length = z, true, int64(len(z.before)+len(z.after))+items.size
	return resp, nil
}

// bytes returns the whole body.
func (b *body) bytes() []byte {
	c := chunks.Writer{Buf: make([]byte, 0, b.atLeast())}
	b.writeTo(&c)
	return c.Buf
}

func (b *body) writeTo(c *chunks.Writer) {
	c.Copy(b.head)
	separator := b.form.separator()
	b.objs.Each(func(i int, o *object.Object) bool {
		if i > 0 {
			c.CopyString(separator)
		}
		b.form.item(c, i, o)
		return c.Err == nil
	})
	c.Copy(b.tail)
}

// WriteTo implements io.WriterTo.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	common := b.form.common()
	c := common.r.writers.Get(w, !common.alone)
	defer common.r.writers.Put(c)
	b.writeTo(c)
	c.Flush()
	common.r.metrics.wrote(common.rep, api.Identity, c.Written)
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
	c := z.r.writers.Get(w, true)
	defer z.r.writers.Put(c)
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

// YAML bodies are the JSON body transcoded with the library that kube-apiserver uses. That takes a
// hundred times the CPU and thirty times the memory of JSON, so only small bodies are transcoded, a
// few at a time; other requests are forwarded.

const (
	// maxYAML is the size limit of the JSON, in bytes: about 100 ms of CPU.
	maxYAML = 1 << 20
	// yamlAtOnce is how many bodies are transcoded at a time.
	yamlAtOnce = 4
)

// ErrCostly reports that rendering a body would cost too much.
var ErrCostly = errors.New("too expensive to transcode")

// yaml renders the body in YAML.
func (b *body) yaml(resp *api.Response, coding api.Compression) (*api.Response, error) {
	c := b.form.common()
	if b.atLeast() > maxYAML {
		return nil, fmt.Errorf("%w: %d bytes of JSON", ErrCostly, b.atLeast())
	}
	select {
	case c.r.transcoding <- struct{}{}:
		defer func() { <-c.r.transcoding }()
	default:
		return nil, fmt.Errorf("%w: %d bodies are being transcoded", ErrCostly, yamlAtOnce)
	}
	text, err := yaml.JSONToYAML(b.bytes())
	if err != nil {
		return nil, err
	}
	if len(text) <= api.CompressionThreshold {
		coding = api.Identity
	}
	if coding != api.Identity {
		text = c.r.coder.Whole(coding, text)
		resp.Header.Add("Content-Encoding", coding.String())
		resp.Header.Add("Vary", "Accept-Encoding")
	}
	resp.Header.Set("Content-Type", "application/yaml")
	resp.Body, resp.Length = text, int64(len(text))
	c.r.metrics.bytes.WithLabelValues("yaml", transforms[c.rep.Transform], coding.String()).Add(float64(len(text)))
	return resp, nil
}

func newTagger() tagger {
	return tagger{process: rand.Text()[:10], start: time.Now(), seed: maphash.MakeSeed()}
}

// tag returns the ETag of l in the form of c, rendered at moment.
func (t tagger) tag(c *base, l *List, coding api.Compression, moment time.Time) string {
	rep := c.rep
	b := append(append(make([]byte, 0, 96), '"'), t.process...)
	b = strconv.AppendUint(append(b, '-'), l.Content, 36)
	b = strconv.AppendUint(append(b, '-'), l.RV, 36)
	if l.Scope != (Scope{}) {
		b = strconv.AppendUint(append(b, 's'), maphash.Comparable(t.seed, l.Scope), 36)
	}
	b = append(b, '-', '0'+byte(rep.Encoding), '0'+byte(rep.Transform), '0'+byte(rep.IncludeObject), '0'+byte(coding))
	for _, flag := range [...]struct {
		set    bool
		letter byte
	}{{rep.Pretty, 'p'}, {rep.YAML, 'y'}, {rep.DropManagedFields, 'd'}, {rep.Redacted, 'r'}} {
		if flag.set {
			b = append(b, flag.letter)
		}
	}
	if rep.Transform == api.Table {
		b = strconv.AppendInt(append(b, '-'), int64(moment.Sub(t.start)), 36)
		b = strconv.AppendUint(append(b, '-'), maphash.Bytes(t.seed, c.res.Printer.Columns()), 36)
	}
	return string(append(b, '"'))
}

// matchesTag reports whether an If-None-Match header names tag, by weak comparison (RFC 9110,
// section 13.1.2).
func matchesTag(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}
