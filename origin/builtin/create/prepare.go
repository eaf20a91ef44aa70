package create

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/json"
)

// largest is up to how many bytes a body is read here. Larger ones are rare, and are not
// to be in memory twice.
const largest = 256 << 10

// errUnforeseen is for the library to tell.
var errUnforeseen = errors.New("unforeseen")

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// prepare decodes a request; ok is false for what the library has to answer, from whose
// view the request is as it was.
func (r *Resource) prepare(req *http.Request) (_ *creation, ok bool) {
	fields, err := r.Fields()
	if err != nil || fields == nil {
		return nil, false
	}
	output, _, err := negotiation.NegotiateOutputMediaType(req, r.Scope.Serializer, r.Scope)
	if err != nil || output.Convert != nil {
		return nil, false
	}
	c := &creation{req: req, options: &metav1.CreateOptions{}}
	if !r.prepareOptions(c) {
		return nil, false
	}
	body, again, err := readBody(req)
	defer func() {
		if !ok {
			req.Body = again
			return
		}
		_ = req.Body.Close() // it was read to its end
	}()
	if err != nil || len(body) > largest || r.Scope.MaxRequestBodyBytes > 0 && int64(len(body)) > r.Scope.MaxRequestBodyBytes {
		return nil, false
	}
	c.bodyBytes = len(body)
	if !r.prepareObject(c, body) {
		return nil, false
	}
	// The versioned form shares the object's memory, and is not kept.
	versioned, err := r.Scope.UnsafeConvertor.ConvertToVersion(c.object, r.Scope.Kind.GroupVersion())
	if err != nil {
		return nil, false
	}
	managed, ok := fields.Fields(versioned)
	if !ok {
		return nil, false
	}
	c.managed = metav1.ManagedFieldsEntry{
		Manager:    manager(c.options.FieldManager, req.UserAgent()),
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: r.Scope.Kind.GroupVersion().String(),
		Time:       &metav1.Time{Time: time.Now().UTC()},
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(string(managed)),
	}
	return c, true
}

// prepareOptions reads the parameters of the query.
func (r *Resource) prepareOptions(c *creation) bool {
	if c.req.URL.RawQuery != "" {
		if err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.req.URL.Query(), r.Scope.MetaGroupVersion, c.options); err != nil {
			return false
		}
		if len(metav1validation.ValidateCreateOptions(c.options)) > 0 || !utf8.ValidString(c.options.FieldManager) {
			return false
		}
	}
	c.options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	return true
}

// prepareObject decodes the object and takes from it what creators do not say.
func (r *Resource) prepareObject(c *creation, body []byte) bool {
	input, err := negotiation.NegotiateInputSerializer(c.req, false, r.Scope.Serializer)
	if err != nil {
		return false
	}
	object := r.decodeJSON(c, input, body)
	if object == nil {
		object, err = r.decode(c, input, body)
	}
	if err != nil {
		return false
	}
	if c.meta, err = meta.Accessor(object); err != nil || c.meta.GetManagedFields() != nil {
		return false
	}
	c.object = object
	return r.prepareNames(c, object)
}

// decodeJSON does for objects that are named in full what decode does, without looking
// through their JSON for the name first; nil if there is more to it.
func (r *Resource) decodeJSON(c *creation, input runtime.SerializerInfo, body []byte) runtime.Object {
	if input.MediaType != runtime.ContentTypeJSON || c.options.FieldValidation == metav1.FieldValidationIgnore {
		return nil
	}
	versioned, err := r.Scope.Creater.New(r.Scope.Kind)
	if err != nil {
		return nil
	}
	if _, nests := versioned.(runtime.NestedObjectDecoder); nests {
		return nil
	}
	strict, err := json.UnmarshalStrict(body, versioned)
	if err != nil || len(strict) > 0 || versioned.GetObjectKind().GroupVersionKind() != r.Scope.Kind {
		return nil
	}
	r.Scope.Defaulter.Default(versioned)
	object := r.Storage.New()
	if err := r.Scope.UnsafeConvertor.Convert(versioned, object, r.Scope.HubGroupVersion); err != nil {
		return nil
	}
	return object
}

// decode is for what comes in other encodings, or is to be understood by its path.
func (r *Resource) decode(c *creation, input runtime.SerializerInfo, body []byte) (runtime.Object, error) {
	decoder := input.StrictSerializer // complaints may be errors, or warnings, which is the default
	if c.options.FieldValidation == metav1.FieldValidationIgnore {
		decoder = input.Serializer
	}
	kind := r.Scope.Kind
	decoded, found, err := r.Scope.Serializer.DecoderToVersion(decoder, r.Scope.HubGroupVersion).Decode(body, &kind, r.Storage.New())
	if err == nil && !r.Scope.AcceptsGroupVersion(found.GroupVersion()) {
		err = errUnforeseen
	}
	return decoded, err
}

func (r *Resource) prepareNames(c *creation, object runtime.Object) bool {
	namespace, err := r.Scope.Namer.Namespace(c.req)
	if err != nil {
		return false
	}
	_, c.name, _ = r.Scope.Namer.ObjectName(object)
	if namespace == "" && r.Scope.Resource == namespaces {
		namespace = c.name
	}
	c.namespace = namespace
	rest.WipeObjectMetaSystemFields(c.meta)
	return rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(namespace, r.Scope.Resource), c.meta) == nil
}

// readBody reads a body, but not more than a byte above largest; again is all of it.
func readBody(req *http.Request) (body []byte, again io.ReadCloser, err error) {
	if n := req.ContentLength; n >= 0 && n < largest {
		body = make([]byte, 0, n+1)
	}
	buf := bytes.NewBuffer(body)
	_, err = buf.ReadFrom(io.LimitReader(req.Body, largest+1))
	body = buf.Bytes()
	rest := io.MultiReader(bytes.NewReader(body), req.Body)
	if err != nil {
		rest = io.MultiReader(bytes.NewReader(body), failing{err})
	}
	return body, struct {
		io.Reader
		io.Closer
	}{rest, req.Body}, err
}

// A failing reader gives the error again that reading a body gave.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// manager is the name of who creates, by default the first word of the User-Agent.
func manager(asked, userAgent string) string {
	if asked != "" {
		return asked
	}
	agent, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, c := range agent {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	if name.Len() == 0 {
		return "unknown"
	}
	return name.String()
}
