package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeweir/kubeweir/internal/api"
)

const (
	// maxObject is the largest object that is recorded, in bytes, as sent and in JSON: the largest body
	// that kube-apiserver accepts.
	maxObject = 3 << 20
	// maxStatus is the largest response that is searched for a Status at level Metadata.
	maxStatus = 64 << 10
	// maxRetained limits the bodies that are retained while they pass, of all requests together.
	maxRetained = 64 << 20
)

// retainedBytes counts the bytes of bodies that are retained.
type retainedBytes struct{ n atomic.Int64 }

func (k *retainedBytes) take(n int) bool {
	if k.n.Add(int64(n)) <= maxRetained {
		return true
	}
	k.n.Add(-int64(n))
	return false
}

func (k *retainedBytes) release(n int) { k.n.Add(-int64(n)) }

// bodyCopy is a copy of what passes, unless that is too large.
type bodyCopy struct {
	retained *retainedBytes
	limit    int
	mu       sync.Mutex
	bytes    []byte
	overflow bool
	over     bool // nothing is retained any more
}

func (c *bodyCopy) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.overflow || c.over:
	case len(c.bytes)+len(p) > c.limit || !c.retained.take(len(p)):
		c.retained.release(len(c.bytes))
		c.bytes, c.overflow = nil, true
	default:
		c.bytes = append(c.bytes, p...)
	}
}

// take returns the copy, and ends it. It is not complete if it has overflowed.
func (c *bodyCopy) take() (content []byte, overflow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, c.bytes, c.over = c.bytes, nil, true
	c.retained.release(len(content))
	return content, c.overflow
}

// requestBody copies the body of a request.
type requestBody struct {
	io.Reader
	bodyCopy
	contentType, contentEncoding string
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.add(p[:n])
	return n, err
}

// SetReadDeadline limits the time to read the body, see api.Request.Body.
func (b *requestBody) SetReadDeadline(t time.Time) error {
	if body, ok := b.Reader.(interface{ SetReadDeadline(t time.Time) error }); ok {
		return body.SetReadDeadline(t)
	}
	return nil
}

// KeepBody has the body of the request recorded, if the policy says so, for an upstream that does not
// do it itself.
func (r *Request) KeepBody(req *api.Request) {
	if r == nil || r.level.Less(auditinternal.LevelRequest) || req.Body == nil || !r.info.IsWrite() || isStreamed(r.info) {
		return
	}
	r.body = &requestBody{
		Reader: req.Body, bodyCopy: bodyCopy{retained: &r.log.retained, limit: maxObject},
		contentType: req.Header.Get("Content-Type"), contentEncoding: req.Header.Get("Content-Encoding"),
	}
	req.Body = r.body
}

// isStreamed reports whether the bodies of the request are no objects.
func isStreamed(info *api.RequestInfo) bool {
	switch info.Subresource {
	case "exec", "attach", "portforward", "proxy", "log":
		return true
	}
	return info.Verb == "proxy"
}

// logRequestObject records the object in the request's body.
func (r *Request) logRequestObject() {
	if r.body == nil {
		return
	}
	content, overflow := r.body.take()
	switch {
	case overflow:
		r.annotate(truncated, "true")
		return
	case len(content) == 0:
		return
	}
	text, err := toJSON(content, r.body.contentType, r.body.contentEncoding)
	if err != nil || !json.Valid(text) {
		return // it is rejected
	}
	if r.info.Verb == "patch" {
		r.ac.LogRequestPatch(text)
		return
	}
	object := &unstructured.Unstructured{}
	if utiljson.Unmarshal(text, &object.Object) == nil && object.Object != nil {
		gvr := schema.GroupVersionResource{Group: r.info.APIGroup, Version: r.info.APIVersion, Resource: r.info.Resource}
		audit.LogRequestObject(r.ctx, object, gvr.GroupVersion(), gvr, r.info.Subresource, untypedSerializer{})
	}
}

// untypedSerializer encodes unstructured objects, whether or not they have a kind.
type untypedSerializer struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (untypedSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON, Serializer: unstructured.UnstructuredJSONScheme}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (untypedSerializer) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

// responseBody copies the body of a response on its way.
type responseBody struct {
	io.WriterTo
	bodyCopy
	contentType, contentEncoding string
}

// WriteTo implements io.WriterTo.
func (b *responseBody) WriteTo(w io.Writer) (int64, error) {
	if pieces, ok := w.(api.PiecesWriter); ok {
		return b.WriterTo.WriteTo(&piecesCopyWriter{copyWriter{w, b}, pieces})
	}
	return b.WriterTo.WriteTo(&copyWriter{w, b})
}

type copyWriter struct {
	io.Writer
	to *responseBody
}

// Write implements io.Writer.
func (c *copyWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.to.add(p[:n])
	return n, err
}

type piecesCopyWriter struct {
	copyWriter
	pieces api.PiecesWriter
}

// WritePieces implements api.PiecesWriter.
func (c *piecesCopyWriter) WritePieces(pieces [][]byte) (int, error) {
	for _, p := range pieces {
		c.to.add(p)
	}
	return c.pieces.WritePieces(pieces)
}

// capture takes the object of a response: the whole one at level RequestResponse; only a Status
// otherwise.
func (r *Request) capture(resp *api.Response) {
	limit := maxObject
	switch {
	case r.upstream && (resp.Status < 400 || r.ac.GetEventResponseStatus() != nil):
		return // recorded by the upstream
	case resp.Status >= 400 && r.info.Subresource != "proxy":
		if r.level.Less(auditinternal.LevelRequestResponse) {
			limit = maxStatus
		}
	case isStreamed(r.info):
		return
	case r.level.Less(auditinternal.LevelRequestResponse):
		if limit = maxStatus; r.info.Verb != "delete" && r.info.Verb != "deletecollection" {
			return
		}
	}
	reply := &responseBody{
		WriterTo: resp.BodyTo, bodyCopy: bodyCopy{retained: &r.log.retained, limit: limit},
		contentType: resp.Header.Get("Content-Type"), contentEncoding: resp.Header.Get("Content-Encoding"),
	}
	switch {
	case resp.BodyTo == nil:
	case resp.Status >= 400 && 0 <= resp.Length && resp.Length <= maxStatus && r.method != http.MethodHead:
		// The first event has the Status already.
		var body bytes.Buffer
		_, err := resp.BodyTo.WriteTo(&body)
		reply.add(body.Bytes())
		resp.BodyTo = readBody{body.Bytes(), err}
	default:
		resp.BodyTo, r.reply = reply, reply
		return
	}
	reply.add(resp.Body)
	reply.log(r)
}

// readBody is a body that was read, and how reading it ended.
type readBody struct {
	content []byte
	err     error
}

// WriteTo implements io.WriterTo.
func (b readBody) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b.content)
	return int64(n), cmp.Or(err, b.err)
}

// log records the object.
func (b *responseBody) log(r *Request) {
	if b == nil {
		return
	}
	content, overflow := b.take()
	if overflow && !r.level.Less(auditinternal.LevelRequestResponse) {
		r.annotate(truncated, "true")
	}
	if len(content) == 0 {
		return
	}
	text, err := toJSON(content, b.contentType, b.contentEncoding)
	var kind metav1.TypeMeta
	if err != nil || json.Unmarshal(text, &kind) != nil || kind.Kind == "" || kind.APIVersion == "" {
		return // no object
	}
	var status *metav1.Status
	if kind.Kind == "Status" && kind.APIVersion == "v1" {
		if status = new(metav1.Status); json.Unmarshal(text, status) != nil {
			return
		}
	}
	if r.omitManagedFields {
		text = withoutManagedFields(text)
	}
	r.ac.LogResponseObject(status, &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON})
}

// withoutManagedFields removes them from an object, the items of a list and the rows of a table.
func withoutManagedFields(text []byte) []byte {
	var object map[string]any
	if !bytes.Contains(text, []byte(`"managedFields"`)) || utiljson.Unmarshal(text, &object) != nil {
		return text
	}
	remove := func(v any) {
		if o, ok := v.(map[string]any); ok {
			unstructured.RemoveNestedField(o, "metadata", "managedFields")
		}
	}
	remove(object)
	items, _ := object["items"].([]any)
	for _, item := range items {
		remove(item)
	}
	rows, _ := object["rows"].([]any)
	for _, row := range rows {
		if r, ok := row.(map[string]any); ok {
			remove(r["object"])
		}
	}
	if less, err := json.Marshal(object); err == nil {
		return less
	}
	return text
}

var errNoText = errors.New("it cannot be converted to JSON")

// toJSON converts a body to JSON.
func toJSON(content []byte, contentType, contentEncoding string) ([]byte, error) {
	content, err := decompress(content, contentEncoding)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch mediaType = strings.TrimSpace(strings.ToLower(mediaType)); {
	case mediaType == "" || strings.HasSuffix(mediaType, "json"):
		return content, nil
	case strings.HasSuffix(mediaType, "yaml"):
		return yaml.YAMLToJSON(content)
	case strings.HasSuffix(mediaType, "cbor"):
		var v any
		if err := direct.Unmarshal(content, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case strings.HasSuffix(mediaType, "protobuf"):
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return nil, err
		}
		return json.Marshal(object)
	}
	return nil, errNoText
}

func decompress(content []byte, encoding string) ([]byte, error) {
	var (
		from io.Reader
		err  error
	)
	switch encoding {
	case "", "identity":
		return content, nil
	case "gzip":
		from, err = gzip.NewReader(bytes.NewReader(content))
	case "zstd":
		var decoder *zstd.Decoder
		if decoder, err = zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderConcurrency(1)); err == nil {
			defer decoder.Close()
		}
		from = decoder
	default:
		err = errNoText
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(from, maxObject+1))
	if err == nil && len(text) > maxObject {
		err = fmt.Errorf("%w: it is larger than %d bytes", errNoText, maxObject)
	}
	return text, err
}
