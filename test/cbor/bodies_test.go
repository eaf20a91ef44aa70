package cbor

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

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
