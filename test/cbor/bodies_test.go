package cbor

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
)

const (
	configMapsPath = "/api/v1/namespaces/" + namespace + "/configmaps"
	secretsPath    = "/api/v1/namespaces/" + namespace + "/secrets"
)

// lostInJSON checks that a float that JSON writes as an integer becomes an integer, although the
// server knows better.
func (s *server) lostInJSON(ctx context.Context, t *testing.T) {
	s.post(ctx, t, valuesPath, `{"apiVersion":"cbor.example.com/v1","kind":"Value","metadata":{"name":"lost"},"spec":{"a":1.0,"b":1e3,"c":-0.0,"d":1}}`)
	defer s.do(ctx, t, http.MethodDelete, valuesPath+"/lost", nil, nil)
	text := s.get(ctx, t, valuesPath+"/lost", typeJSON)
	for name, got := range map[string][]byte{
		"{'a': 1.0, 'b': 1000.0, 'c': -0.0, 'd': 1, 'shared': 2.5, 'limited': 7}": s.get(ctx, t, valuesPath+"/lost", typeCBOR),
		"{'a': 1, 'b': 1000, 'c': 0, 'd': 1, 'shared': 2.5, 'limited': 7}":        transcode(t, text, cbor.Untyped),
	} {
		if text := cbortest.Diagnose(cbortest.Sorted(t, got)); !strings.Contains(text, name) {
			t.Errorf("%s is not in %s", name, text)
		}
	}
}

// compareErrors checks that a Status in CBOR equals that in JSON.
func (s *server) compareErrors(ctx context.Context, t *testing.T) {
	badName := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"no/name"}}`
	for _, tc := range []struct{ method, path, body string }{
		{http.MethodGet, configMapsPath + "/none", ""},
		{http.MethodGet, valuesPath + "/none", ""},
		{http.MethodGet, "/apis/none.example.com/v1/nothing", ""},
		{http.MethodGet, configMapsPath + "?limit=x", ""},
		{http.MethodGet, configMapsPath + "?watch=1&resourceVersion=x", ""},
		{http.MethodPut, configMapsPath, ""},
		{http.MethodPost, configMapsPath, badName},
		{http.MethodPost, configMapsPath, `{`},
		{http.MethodDelete, configMapsPath + "/none", ""},
	} {
		header := map[string]string{"Content-Type": typeJSON, "Accept": typeJSON}
		want := s.do(ctx, t, tc.method, tc.path, header, []byte(tc.body))
		header["Accept"] = typeCBOR
		got := s.do(ctx, t, tc.method, tc.path, header, []byte(tc.body))
		if got.status != want.status || want.contentType == typeJSON && got.contentType == typeCBOR &&
			!bytes.Equal(cbortest.Sorted(t, transcode(t, want.body, cbor.Untyped)), cbortest.Sorted(t, got.body)) {
			t.Errorf("%s %s: %d %s, %d %s", tc.method, tc.path, want.status, want.body, got.status, cbortest.Diagnose(got.body))
		}
	}
}

// mediaTypes checks the server's messages for rejected media types.
func (s *server) mediaTypes(ctx context.Context, t *testing.T) {
	const all = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
	const notAcceptable, unsupported = "only the following media types are accepted: ", "the body of the request was in an unknown format - accepted media types include: "
	const customPatches = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor"
	for _, tc := range []struct{ method, path, accept, contentType, want string }{
		// go-restful rejects the request before the handlers of built-in resources do.
		{http.MethodGet, configMapsPath, "application/foo", "", "406 406: Not Acceptable\n\nAvailable representations: " + all +
			", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"},
		{http.MethodPatch, configMapsPath + "/a", typeJSON, typeCBOR, "415 415: Unsupported Media Type"},
		// There are no Tables in CBOR, and clients cannot request application/cbor-seq: it is only
		// the Content-Type of watches.
		{http.MethodGet, configMapsPath, typeCBOR + asTable, "", "406 " + notAcceptable + all},
		{http.MethodGet, configMapsPath, "application/cbor-seq", "", "406 " + notAcceptable + all},
		{http.MethodGet, configMapsPath + "?watch=1&timeoutSeconds=1", "application/cbor-seq", "", "406 " + notAcceptable + all},
		{http.MethodGet, valuesPath, "application/foo", "", "406 " + notAcceptable + all},
		{http.MethodGet, valuesPath + "?watch=1&timeoutSeconds=1", "application/cbor-seq", "", "406 " + notAcceptable + all},
		{http.MethodPost, configMapsPath, typeJSON, "application/cbor-seq", "415 " + unsupported + all},
		{http.MethodPost, valuesPath, typeJSON, "application/foo", "415 " + unsupported + all},
		{http.MethodPatch, valuesPath + "/a", typeJSON, typeCBOR, "415 " + unsupported + customPatches},
	} {
		resp := s.do(ctx, t, tc.method, tc.path, map[string]string{"Accept": tc.accept, "Content-Type": tc.contentType}, []byte("x"))
		if got := fmt.Sprint(resp.status, " ", message(t, resp)); got != tc.want {
			t.Errorf("%s %s, %s, %s:\n got %s\nwant %s", tc.method, tc.path, tc.accept, tc.contentType, got, tc.want)
		}
	}
}

// message returns the message of a Status in JSON.
func message(t *testing.T, resp response) string {
	t.Helper()
	var status struct{ Message string }
	if resp.contentType != typeJSON {
		return strings.TrimSpace(string(resp.body))
	}
	decodeJSON(t, resp.body, &status)
	return status.Message
}

func item(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type object = map[string]any

// compareBodies checks that a body in CBOR, and the JSON that it is transcoded to, mean the same to
// the server.
func (s *server) compareBodies(ctx context.Context, t *testing.T) {
	named := func(apiVersion, kind string, more object) object {
		o := object{"apiVersion": apiVersion, "kind": kind, "metadata": object{"name": "body", "labels": object{"a": "b"}}}
		for k, v := range more {
			o[k] = v
		}
		return o
	}
	value := named("cbor.example.com/v1", "Value", object{"spec": object{
		"float": 1.0, "int": int64(1), "minusZero": math.Copysign(0, -1), "thousand": 1e3, "huge": 1e300, "max": int64(1<<63 - 1), "bytes": []byte{0, 1}, "text": "é\x00\u0085\"",
		"null": nil, "list": []any{int64(1), 2.5, "x"}, "empty": object{},
	}})
	secret := named("v1", "Secret", object{"data": object{"a": []byte{0, 255}, "b": []byte{}}, "stringData": object{"c": "x"}})
	configMap := named("v1", "ConfigMap", object{"data": object{"a": "b"}, "binaryData": object{"c": []byte{1, 2, 3}}})
	applied := renamed(value, "applied")
	applied["spec"] = object{"half": 0.5, "huge": 1e300, "int": int64(1), "bytes": []byte{0, 1}, "text": "é\x00\u0085\"\u2028\ufeff", "null": nil, "list": []any{2.5}}
	const dryRun, apply = "?dryRun=All", "?dryRun=All&fieldManager=test"
	for _, tc := range []struct {
		name, method, path string
		body               []byte
		gvk                schema.GroupVersionKind
	}{
		{"custom resource", http.MethodPost, valuesPath + dryRun, encoded(t, value), schema.GroupVersionKind{}},
		{"secret", http.MethodPost, secretsPath + dryRun, encoded(t, secret), schema.GroupVersionKind{Version: "v1", Kind: "Secret"}},
		{"config map", http.MethodPost, configMapsPath + dryRun, encoded(t, configMap), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		// {_ "kind": "ConfigMap", "apiVersion": (_ "v", "1"), "metadata": {_ "name": "body"},
		// "data": {"t": 0("2013-03-21T20:04:00Z")}}, in text strings
		{"other encodings", http.MethodPost, configMapsPath + dryRun,
			item(t, "d9d9f7bf646b696e6469436f6e6669674d61706a61706956657273696f6e7f61766131ff686d65746164617461bf646e616d6564626f6479ff"+
				"6464617461a16174c074323031332d30332d32315432303a30343a30305aff"),
			schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		{"wrong type", http.MethodPost, configMapsPath + dryRun, encoded(t, named("v1", "ConfigMap", object{"data": "x"})), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		{"float for integer", http.MethodPost, "/apis/apps/v1/namespaces/" + namespace + "/deployments" + dryRun,
			encoded(t, named("apps/v1", "Deployment", object{"spec": object{"replicas": 1.0}})), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}},
		{"text for bytes", http.MethodPost, secretsPath + dryRun,
			item(t, "a4446b696e64465365637265744a61706956657273696f6e427631486d65746164617461a1446e616d6544626f64794464617461a141616459513d3d"),
			schema.GroupVersionKind{Version: "v1", Kind: "Secret"}},
		// The server decodes YAML's 1.0 as an integer, so the object has no such float.
		{"apply", http.MethodPatch, valuesPath + "/applied" + apply, encoded(t, applied), schema.GroupVersionKind{}},
		{"apply secret", http.MethodPatch, secretsPath + "/applied" + apply, encoded(t, renamed(secret, "applied")), schema.GroupVersionKind{Version: "v1", Kind: "Secret"}},
	} {
		t.Run(tc.name, func(t *testing.T) { s.compareBody(ctx, t, tc.method, tc.path, tc.body, cbor.ShapeOf(tc.gvk)) })
	}
}

// renamed returns o with another name.
func renamed(o object, name string) object {
	out := maps.Clone(o)
	out["metadata"] = object{"name": name}
	return out
}

func (s *server) compareBody(ctx context.Context, t *testing.T, method, path string, body []byte, shape cbor.Shape) {
	t.Helper()
	cborType, jsonType := typeCBOR, typeJSON
	if method == http.MethodPatch {
		cborType, jsonType = "application/apply-patch+cbor", "application/apply-patch+yaml"
	}
	want := s.do(ctx, t, method, path, map[string]string{"Accept": typeCBOR, "Content-Type": cborType}, body)
	text, err := cbor.AppendJSON(nil, body, shape)
	if err != nil {
		if want.status < 400 {
			t.Errorf("%v, which the server accepts: %s", err, cbortest.Diagnose(want.body))
		}
		return
	}
	got := s.do(ctx, t, method, path, map[string]string{"Accept": typeCBOR, "Content-Type": jsonType}, text)
	if got.status != want.status {
		t.Fatalf("%s: %d %s\nin CBOR: %d %s", text, got.status, cbortest.Diagnose(got.body), want.status, cbortest.Diagnose(want.body))
	}
	if got.status >= 400 { // both name the field, in different words
		return
	}
	if got, want := stored(t, got.body), stored(t, want.body); !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s:\n got %s\nwant %s", text, g, w)
	}
}

// stored decodes an object in CBOR and removes fields that differ between requests.
func stored(t *testing.T, body []byte) object {
	t.Helper()
	var o object
	if err := direct.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	metadata := o["metadata"].(object)
	for _, field := range []string{"uid", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	return o
}

// badBodies checks that invalid CBOR is rejected with 400 and that the server's message contains
// the error of package cbor.
func (s *server) badBodies(ctx context.Context, t *testing.T) {
	for _, body := range []string{
		"", "a1", "ff", "a2416101416102", "a1616101a0", "f7", "a14161f7", "a1f6f97e00", "a16161c24101", "61ff", "a1416161ff", "1c", "5f6161ff", "a10101", "a14161c06161",
	} {
		resp := s.do(ctx, t, http.MethodPost, valuesPath, map[string]string{"Accept": typeJSON, "Content-Type": typeCBOR}, item(t, body))
		_, err := cbor.AppendJSON(nil, item(t, body), cbor.Untyped)
		if err == nil || resp.status != http.StatusBadRequest || !strings.Contains(message(t, resp), ": "+err.Error()) {
			t.Errorf("%q: %v\nthe server: %d %s", body, err, resp.status, message(t, resp))
		}
	}
}
