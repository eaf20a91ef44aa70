package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	yamlv3 "go.yaml.in/yaml/v3"
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

// retainedBytes counts the bytes of bodies that are retained, and shares maxRetained between users.
type retainedBytes struct {
	mu    sync.Mutex
	total int
	users map[string]int // by user, without zeros
}

// take reports whether a user may retain n more bytes: one user gets at most a quarter of all, and at
// most three times what is left to others, so a user who has nothing finds some.
func (k *retainedBytes) take(user string, n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	held, free := k.users[user]+n, maxRetained-k.total-n
	if free < 0 || held > maxRetained/4 || held > 3*free {
		return false
	}
	if k.users == nil {
		k.users = make(map[string]int)
	}
	k.users[user] = held
	k.total += n
	return true
}

func (k *retainedBytes) release(user string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total -= n
	if k.users[user] -= n; k.users[user] <= 0 {
		delete(k.users, user)
	}
}

// bodyCopy is a copy of a body that passes, unless that is too large.
type bodyCopy struct {
	retained *retainedBytes
	user     string
	limit    int
	mu       sync.Mutex
	bytes    []byte
	size     int // bytes that count as retained
	overflow bool
	over     bool // nothing is added any more
}

func (c *bodyCopy) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.overflow || c.over || len(p) == 0:
	case len(c.bytes)+len(p) > c.limit || !c.retained.take(c.user, len(p)):
		c.overflow = true
		c.drop()
	default:
		c.bytes = append(c.bytes, p...)
		c.size += len(p)
	}
}

// take returns the copy, and ends it. It is not complete if it has overflowed. The bytes count as
// retained until release.
func (c *bodyCopy) take() (content []byte, overflow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.bytes, c.overflow
}

// release ends the copy and drops it. It may be called again.
func (c *bodyCopy) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.drop()
}

func (c *bodyCopy) drop() {
	if c.size > 0 {
		c.retained.release(c.user, c.size)
	}
	c.bytes, c.size = nil, 0
}

// requestBody copies the body of a request.
type requestBody struct {
	io.Reader
	bodyCopy
	contentType string
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
		Reader: req.Body, bodyCopy: bodyCopy{retained: &r.log.retained, user: r.user, limit: maxObject},
		contentType: req.Header.Get("Content-Type"), // the Content-Encoding has no meaning for kube-apiserver
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
	defer r.body.release()
	content, overflow := r.body.take()
	switch {
	case overflow:
		r.annotate(truncated, "true")
		return
	case len(content) == 0:
		return
	}
	text, err := toJSON(content, r.body.contentType)
	if err == nil && !json.Valid(text) {
		err = errNotConverted
	}
	if err == nil && r.info.Verb == "patch" {
		r.ac.LogRequestPatch(text)
		return
	}
	object := &unstructured.Unstructured{}
	if err == nil && (utiljson.Unmarshal(text, &object.Object) != nil || object.Object == nil) {
		err = errNotConverted
	}
	if err != nil {
		r.annotateMissing(missingRequestObject, err)
		return
	}
	gvr := schema.GroupVersionResource{Group: r.info.APIGroup, Version: r.info.APIVersion, Resource: r.info.Resource}
	audit.LogRequestObject(r.ctx, object, gvr.GroupVersion(), gvr, r.info.Subresource, untypedSerializer{})
}

// annotateMissing records why the event does not have an object.
func (r *Request) annotateMissing(key string, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		r.annotate(truncated, "true")
	case errors.Is(err, errAliases):
		r.annotate(key, errAliases.Error())
	default:
		r.annotate(key, errNotConverted.Error()) // err may have parts of the body
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
		WriterTo: resp.BodyTo, bodyCopy: bodyCopy{retained: &r.log.retained, user: r.user, limit: limit},
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
	defer b.release()
	content, overflow := b.take()
	if overflow && !r.level.Less(auditinternal.LevelRequestResponse) {
		r.annotate(truncated, "true")
	}
	if len(content) == 0 {
		return
	}
	content, err := decompress(content, b.contentEncoding)
	var text []byte
	if err == nil {
		text, err = toJSON(content, b.contentType)
	}
	if err != nil && r.info.IsResourceRequest && !errors.Is(err, errMediaType) && !r.level.Less(auditinternal.LevelRequestResponse) {
		r.annotateMissing(missingResponseObject, err)
	}
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

const (
	// missingRequestObject and missingResponseObject are the annotations of an event without an object,
	// because the body could not be converted to JSON. They say why.
	missingRequestObject  = "kubeweir/missing-request-object"
	missingResponseObject = "kubeweir/missing-response-object"
)

var (
	errNotConverted = errors.New("the body cannot be converted to JSON")
	errMediaType    = fmt.Errorf("%w: it is not an object", errNotConverted)
	errAliases      = errors.New("the body is YAML with anchors or aliases")
	errTooLarge     = fmt.Errorf("the object is larger than %d bytes", maxObject)
)

// toJSON converts a body to JSON of at most maxObject bytes.
func toJSON(content []byte, contentType string) (text []byte, err error) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch mediaType = strings.TrimSpace(strings.ToLower(mediaType)); {
	case mediaType == "" || strings.HasSuffix(mediaType, "json"):
		text = content
	case strings.HasSuffix(mediaType, "yaml"):
		text, err = yamlToJSON(content)
	case strings.HasSuffix(mediaType, "cbor"):
		var v any
		if err = direct.Unmarshal(content, &v); err == nil {
			text, err = json.Marshal(v)
		}
	case strings.HasSuffix(mediaType, "protobuf"):
		var object runtime.Object
		if object, _, err = scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil); err == nil {
			text, err = json.Marshal(object)
		}
	default:
		err = errMediaType
	}
	if err == nil && len(text) > maxObject {
		err = errTooLarge
	}
	return text, err
}

// yamlToJSON converts YAML without aliases, which could stand for far more text than the body has.
func yamlToJSON(content []byte) ([]byte, error) {
	if bytes.IndexByte(content, '*') >= 0 { // no alias is written without
		var root yamlv3.Node
		if err := yamlv3.Unmarshal(content, &root); err != nil {
			return nil, err
		}
		if hasAliases(&root) {
			return nil, errAliases
		}
	}
	return yaml.YAMLToJSON(content)
}

// hasAliases reports whether a node has anchors or aliases.
func hasAliases(n *yamlv3.Node) bool {
	return n.Kind == yamlv3.AliasNode || n.Anchor != "" || slices.ContainsFunc(n.Content, hasAliases)
}

// maxWindow limits the memory that a response compressed with zstd takes. RFC 8878 recommends that
// decoders support at least this much; the client may have chosen the encoding.
const maxWindow = 8 << 20

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
		if decoder, err = zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow)); err == nil {
			defer decoder.Close()
		}
		from = decoder
	default:
		err = errNotConverted
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(from, maxObject+1))
	if err == nil && len(text) > maxObject {
		err = errTooLarge
	}
	return text, err
}
