package proxy

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/response"
)

const (
	// maxOpenAPIBytes bounds what is kept of OpenAPI documents. The schemas of a cluster
	// with 1,000 custom resources are about 50 MB of JSON, and a tenth of that compressed.
	maxOpenAPIBytes = 64 << 20
	// maxOpenAPIDocument is the largest document that is kept, as it is sent.
	maxOpenAPIDocument = maxOpenAPIBytes / 2
	// maxOpenAPIDocuments bounds their number, maxOpenAPIKey what one is known by: clients
	// choose queries and media types.
	maxOpenAPIDocuments = 1024
	maxOpenAPIKey       = 1 << 10
)

// openAPI serves an OpenAPI document from memory after the upstream has confirmed, with 304
// to the client's own request, that it is current. So the upstream authorizes every request
// and need not send, or compress, what has not changed. It returns nil for other requests.
func (g *Gateway) openAPI(ctx context.Context, x *exchange) *api.Response {
	r := x.Request
	key, ok := openAPIKey(x)
	if !ok {
		return nil
	}
	kept := g.memory.openAPIDocuments.get(key)
	if kept != nil && g.isUnreachable() && x.AllowsOffline() && !x.Subject.UpstreamDecides {
		return g.offlineOpenAPI(ctx, x, kept)
	}
	if tag := r.Header.Get("If-None-Match"); tag != "" { // the client has a document itself
		resp := g.forward(ctx, x)
		if kept != nil && resp.Status == 304 && tag == kept.header.Get("Etag") {
			kept.confirmed.Store(time.Now().UnixNano())
		}
		return resp
	}
	if kept != nil && kept.header.Has("Etag") {
		r.Header.Add("If-None-Match", kept.header.Get("Etag"))
	}
	resp := g.forward(ctx, x)
	switch {
	case kept != nil && resp.Status == 304:
		response.Discard(resp)
		kept.confirmed.Store(time.Now().UnixNano())
		x.source = fromRevalidated
		header := response.SharedHeader(resp.Header)
		for _, f := range kept.header { // a 304 lacks what describes the body
			if !resp.Header.Has(f.Name) {
				header = append(header, f)
			}
		}
		return &api.Response{Status: 200, Header: header, Body: kept.body, Length: int64(len(kept.body))}
	case resp.Status == 200 && (resp.Header.Has("Etag") || r.Path == openAPIIndex):
		o := &openAPIReader{from: resp.BodyTo, to: g.memory.openAPIDocuments, key: key, header: response.SharedHeader(resp.Header)}
		if resp.BodyTo != nil {
			resp.BodyTo = o
		} else if _, _ = (*openAPICopy)(o).Write(resp.Body); !o.full {
			o.keep()
		}
	}
	return resp
}

// isOpenAPI reports whether r reads an OpenAPI document as a whole.
func isOpenAPI(r *api.Request) bool {
	return r.Method == "GET" && r.RawPath == r.Path && r.Upgrade == "" && r.ContentLength == 0 && !r.Header.Has("Range") &&
		(r.Path == "/openapi/v2" || r.Path == openAPIIndex || strings.HasPrefix(r.Path, openAPIIndex+"/"))
}

// openAPIIndex is the path of the list of OpenAPI v3 documents with their hashes. It has no ETag,
// so it is kept for outages alone.
const openAPIIndex = "/openapi/v3"

// openAPIKey returns what the document that x reads is kept by, in strings that outlive the
// request; ok is false if they are too long.
func openAPIKey(x *exchange) (key consistency.Key, ok bool) {
	r := x.Request
	lines := func(name string) string { return strings.Clone(strings.Join(r.Header.Values(name), "\n")) }
	key = consistency.Key{Path: strings.Clone(r.RawPath), Query: strings.Clone(r.RawQuery), Accept: lines("Accept"), AcceptEncoding: lines("Accept-Encoding"), Pretty: x.Pretty}
	return key, len(key.Path)+len(key.Query)+len(key.Accept)+len(key.AcceptEncoding) <= maxOpenAPIKey
}

// offlineOpenAPI responds with a document that the upstream confirmed within the time for which
// what it said last counts; nil if that is over.
func (g *Gateway) offlineOpenAPI(ctx context.Context, x *exchange, kept *openAPIDocument) *api.Response {
	age := time.Since(time.Unix(0, kept.confirmed.Load()))
	if age > x.policy.Offline.TTL {
		return nil
	}
	if refusal := g.permit(ctx, x); refusal != nil {
		return refusal
	}
	x.source = fromCache
	resp := &api.Response{Status: 200, Header: response.SharedHeader(kept.header), Body: kept.body, Length: int64(len(kept.body))}
	if tag := kept.header.Get("Etag"); tag != "" && x.Request.Header.Get("If-None-Match") == tag {
		resp = &api.Response{Status: 304, Header: api.Header{{Name: "Etag", Value: tag}}}
	}
	g.markStale(resp, max(age, 1))
	return resp
}

// openAPIDocument is one that is kept. All but confirmed must not change.
type openAPIDocument struct {
	key    consistency.Key
	header api.Header
	body   []byte
	// confirmed is when the upstream sent it, or confirmed it with 304, in nanoseconds since 1970.
	confirmed atomic.Int64
}

// openAPIDocuments are the documents used last. They are safe for concurrent use.
type openAPIDocuments struct {
	mu    sync.Mutex
	byKey map[consistency.Key]*list.Element // of used; guarded by mu
	used  list.List                         // of *openAPIDocument, the last used one first; guarded by mu
	bytes int                               // of the documents, and of those being read; guarded by mu
}

func newOpenAPIDocuments(registerer prometheus.Registerer) *openAPIDocuments {
	d := &openAPIDocuments{byKey: make(map[consistency.Key]*list.Element)}
	if registerer != nil {
		registerer.MustRegister(
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_openapi_bytes",
				Help: "Bytes of OpenAPI documents that are kept, and answered with when the cluster says that they are current.",
			}, func() float64 { d.mu.Lock(); defer d.mu.Unlock(); return float64(d.bytes) }),
			gaugefunc.New(prometheus.GaugeOpts{
				Name: "kubeweir_openapi_bytes_limit",
				Help: "Bytes of OpenAPI documents that are kept at most; the ones not used for the longest time go first.",
			}, func() float64 { return maxOpenAPIBytes }),
		)
	}
	return d
}

// get returns a document, or nil.
func (d *openAPIDocuments) get(key consistency.Key) *openAPIDocument {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byKey[key]
	if e == nil {
		return nil
	}
	d.used.MoveToFront(e)
	return e.Value.(*openAPIDocument)
}

// revalidates reports whether a document is kept that the upstream can confirm.
func (d *openAPIDocuments) revalidates(key consistency.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byKey[key]
	return e != nil && e.Value.(*openAPIDocument).header.Has("Etag")
}

// reserve counts n bytes of a document that is being read, or reports that there is no
// room for them even without all documents.
func (d *openAPIDocuments) reserve(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += n
	for d.bytes > maxOpenAPIBytes && d.used.Len() > 0 {
		d.removeLocked(d.used.Back())
	}
	if d.bytes > maxOpenAPIBytes {
		d.bytes -= n
		return false
	}
	return true
}

// release gives back what was reserved.
func (d *openAPIDocuments) release(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= n
}

// put keeps a document whose bytes are reserved.
func (d *openAPIDocuments) put(doc *openAPIDocument) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.byKey[doc.key]; old != nil {
		d.removeLocked(old)
	}
	d.byKey[doc.key] = d.used.PushFront(doc)
	for d.used.Len() > maxOpenAPIDocuments {
		d.removeLocked(d.used.Back())
	}
}

func (d *openAPIDocuments) removeLocked(e *list.Element) {
	doc := d.used.Remove(e).(*openAPIDocument)
	delete(d.byKey, doc.key)
	d.bytes -= len(doc.body)
}

// openAPIReader passes a document on, and keeps it when all of it has come.
type openAPIReader struct {
	from   io.WriterTo
	to     *openAPIDocuments
	key    consistency.Key
	header api.Header
	body   []byte
	full   bool // there was no room for more
}

// WriteTo implements io.WriterTo.
func (o *openAPIReader) WriteTo(w io.Writer) (int64, error) {
	kept := false
	defer func() {
		if !kept {
			o.to.release(len(o.body))
		}
	}()
	n, err := o.from.WriteTo(io.MultiWriter(w, (*openAPICopy)(o)))
	if kept = err == nil && !o.full; kept {
		o.keep()
	}
	return n, err
}

func (o *openAPIReader) keep() {
	doc := &openAPIDocument{key: o.key, header: o.header, body: bytes.Clone(o.body)}
	doc.confirmed.Store(time.Now().UnixNano())
	o.to.put(doc)
}

// openAPICopy is what an openAPIReader copies a document to.
type openAPICopy openAPIReader

// Write implements io.Writer. It never fails: what has no room is passed on all the same.
func (o *openAPICopy) Write(p []byte) (int, error) {
	if o.full {
		return len(p), nil
	}
	if len(o.body)+len(p) > maxOpenAPIDocument || !o.to.reserve(len(p)) {
		o.to.release(len(o.body))
		o.body, o.full = nil, true
		return len(p), nil
	}
	o.body = append(o.body, p...)
	return len(p), nil
}
