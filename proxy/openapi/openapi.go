package openapi

import (
	"bytes"
	"container/list"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/response"
)

const (
	// MaxBytes bounds the bytes of all documents. The schemas of a cluster with 1,000 custom
	// resources are about 50 MB of JSON, and a tenth of that compressed.
	MaxBytes = 64 << 20
	// MaxDocument is the largest document that is saved, in bytes as sent.
	MaxDocument = MaxBytes / 2
	// MaxDocuments bounds the number of documents, and MaxKey the bytes of a key: clients choose
	// queries and media types.
	MaxDocuments = 1024
	MaxKey       = 1 << 10
)

// IsDocument reports whether r reads a complete OpenAPI document.
func IsDocument(r *api.Request) bool {
	return r.Method == "GET" && r.RawPath == r.Path && r.Upgrade == "" && r.ContentLength == 0 && !r.Header.Has("Range") &&
		(r.Path == "/openapi/v2" || r.Path == Index || strings.HasPrefix(r.Path, Index+"/"))
}

// Index is the path of the list of OpenAPI v3 documents and their hashes. It has no ETag, so it is
// saved for outages only.
const Index = "/openapi/v3"

// KeyOf returns the key of the document that r reads, in strings that outlive the request; ok is false
// if they are too long.
func KeyOf(r *api.Request, pretty bool) (key consistency.Key, ok bool) {
	lines := func(name string) string { return strings.Clone(strings.Join(r.Header.Values(name), "\n")) }
	key = consistency.Key{Path: strings.Clone(r.RawPath), Query: strings.Clone(r.RawQuery), Accept: lines("Accept"), AcceptEncoding: lines("Accept-Encoding"), Pretty: pretty}
	return key, len(key.Path)+len(key.Query)+len(key.Accept)+len(key.AcceptEncoding) <= MaxKey
}

// Document is a saved document. Its fields must not be changed.
type Document struct {
	key    consistency.Key
	Header api.Header
	Body   []byte
	// confirmed is when the upstream sent or confirmed the document, in nanoseconds since 1970.
	confirmed atomic.Int64
}

// Confirm records that the upstream has confirmed the document now.
func (d *Document) Confirm() { d.confirmed.Store(time.Now().UnixNano()) }

// ConfirmedAt returns when the upstream last confirmed the document.
func (d *Document) ConfirmedAt() time.Time { return time.Unix(0, d.confirmed.Load()) }

// Documents has the most recently used documents. It is safe for concurrent use.
type Documents struct {
	mu    sync.Mutex
	byKey map[consistency.Key]*list.Element // of used; guarded by mu
	used  list.List                         // of *Document, the last used one first; guarded by mu
	bytes int                               // of the documents, and of those being read; guarded by mu
}

// New returns no documents yet. registerer may be nil.
func New(registerer prometheus.Registerer) *Documents {
	d := &Documents{byKey: make(map[consistency.Key]*list.Element)}
	gaugefunc.Register(registerer, "kubeweir_openapi_bytes",
		"Bytes of cached OpenAPI documents, which are served after the cluster has confirmed that they are current.",
		func() int { _, bytes := d.Size(); return bytes })
	gaugefunc.Register(registerer, "kubeweir_openapi_bytes_limit",
		"Limit on the bytes of cached OpenAPI documents; the least recently used are evicted.", func() int { return MaxBytes })
	return d
}

// Size returns the number of documents, and their bytes together with those being read.
func (d *Documents) Size() (documents, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used.Len(), d.bytes
}

// Save saves the document of a response as it is passed on, once it is complete.
func (d *Documents) Save(key consistency.Key, resp *api.Response) {
	o := &reader{from: resp.BodyTo, to: d, key: key, header: response.SharedHeader(resp.Header)}
	if resp.BodyTo != nil {
		resp.BodyTo = o
	} else if _, _ = (*copier)(o).Write(resp.Body); !o.full {
		o.save()
	}
}

// Get returns a document, or nil.
func (d *Documents) Get(key consistency.Key) *Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byKey[key]
	if e == nil {
		return nil
	}
	d.used.MoveToFront(e)
	return e.Value.(*Document)
}

// Revalidates reports whether there is a document that the upstream can confirm.
func (d *Documents) Revalidates(key consistency.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byKey[key]
	return e != nil && e.Value.(*Document).Header.Has("Etag")
}

// reserve counts n bytes of a document that is being read. It returns false if there is no room for
// them even without all other documents.
func (d *Documents) reserve(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += n
	for d.bytes > MaxBytes && d.used.Len() > 0 {
		d.removeLocked(d.used.Back())
	}
	if d.bytes > MaxBytes {
		d.bytes -= n
		return false
	}
	return true
}

// release undoes reserve.
func (d *Documents) release(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= n
}

// put saves a document whose bytes are reserved.
func (d *Documents) put(doc *Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.byKey[doc.key]; old != nil {
		d.removeLocked(old)
	}
	d.byKey[doc.key] = d.used.PushFront(doc)
	for d.used.Len() > MaxDocuments {
		d.removeLocked(d.used.Back())
	}
}

func (d *Documents) removeLocked(e *list.Element) {
	doc := d.used.Remove(e).(*Document)
	delete(d.byKey, doc.key)
	d.bytes -= len(doc.Body)
}

// reader passes a document on, and saves it once it is complete.
type reader struct {
	from   io.WriterTo
	to     *Documents
	key    consistency.Key
	header api.Header
	body   []byte
	full   bool // there was no room for the rest
}

// WriteTo implements io.WriterTo.
func (o *reader) WriteTo(w io.Writer) (int64, error) {
	saved := false
	defer func() {
		if !saved {
			o.to.release(len(o.body))
		}
	}()
	n, err := o.from.WriteTo(io.MultiWriter(w, (*copier)(o)))
	if saved = err == nil && !o.full; saved {
		o.save()
	}
	return n, err
}

func (o *reader) save() {
	doc := &Document{key: o.key, Header: o.header, Body: bytes.Clone(o.body)}
	doc.Confirm()
	o.to.put(doc)
}

// copier is the writer to which a reader copies its document.
type copier reader

// Write implements io.Writer. It never fails: without room the document is passed on all the same.
func (o *copier) Write(p []byte) (int, error) {
	if o.full {
		return len(p), nil
	}
	if len(o.body)+len(p) > MaxDocument || !o.to.reserve(len(p)) {
		o.to.release(len(o.body))
		o.body, o.full = nil, true
		return len(p), nil
	}
	o.body = append(o.body, p...)
	return len(p), nil
}
