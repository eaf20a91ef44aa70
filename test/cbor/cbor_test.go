// Package cbor compares the CBOR that package encoding/cbor makes from kube-apiserver's JSON with
// that of a kube-apiserver with the feature gate CBORServingAndStorage. Both must be equal byte for
// byte, except for the order of map members, which kube-apiserver chooses at random.
package cbor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/steady"
)

const (
	typeJSON  = "application/json"
	typeCBOR  = "application/cbor"
	asTable   = ";as=Table;v=v1;g=meta.k8s.io"
	asPartial = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asList    = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	namespace = "cbor"
)

// A server is a kube-apiserver that serves CBOR.
type server struct {
	config *rest.Config
	client *http.Client
}

func TestCBOR(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	cluster, err := realkube.Start(ctx, realkube.Options{FeatureGates: map[string]bool{"CBORServingAndStorage": true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &server{config: cluster.AdminConfig()}
	if s.client, err = rest.HTTPClientFor(s.config); err != nil {
		t.Fatal(err)
	}
	s.createObjects(ctx, t)
	resources := s.resources(ctx, t)
	for _, r := range resources {
		t.Run(strings.TrimPrefix(r.path, "/"), func(t *testing.T) { s.compareReads(ctx, t, r) })
	}
	t.Run("gateway", func(t *testing.T) { s.compareGateway(ctx, t, startGateway(ctx, t, cluster), resources) })
	t.Run("values that JSON does not distinguish", func(t *testing.T) { s.lostInJSON(ctx, t) })
	t.Run("errors", func(t *testing.T) { s.compareErrors(ctx, t) })
	t.Run("media types", func(t *testing.T) { s.mediaTypes(ctx, t) })
}

// A response is a response of the server.
type response struct {
	status      int
	contentType string
	etag        string // set if the response is from a cache
	body        []byte
}

func (s *server) do(ctx context.Context, t *testing.T, method, path string, header map[string]string, body []byte) response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.config.Host+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Etag"), data}
}

// get returns the body of a successful response, which must have the requested media type.
func (s *server) get(ctx context.Context, t *testing.T, path, accept string) []byte {
	t.Helper()
	resp := s.do(ctx, t, http.MethodGet, path, map[string]string{"Accept": accept}, nil)
	want, _, _ := strings.Cut(accept, ";")
	if got, _, _ := strings.Cut(resp.contentType, ";"); resp.status != http.StatusOK || got != want {
		t.Fatalf("GET %s: %d, %s: %.500s", path, resp.status, resp.contentType, resp.body)
	}
	return resp.body
}

// A resource can be listed and watched.
type resource struct {
	path string // path of the list in all namespaces
	gvk  schema.GroupVersionKind
}

// resources returns all served resources.
func (s *server) resources(ctx context.Context, t *testing.T) []resource {
	t.Helper()
	var groups metav1.APIGroupList
	decodeJSON(t, s.get(ctx, t, "/apis", typeJSON), &groups)
	roots := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			roots = append(roots, "/apis/"+v.GroupVersion)
		}
	}
	var found []resource
	for _, root := range roots {
		var list metav1.APIResourceList
		decodeJSON(t, s.get(ctx, t, root, typeJSON), &list)
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				found = append(found, resource{root + "/" + r.Name, gv.WithKind(r.Kind)})
			}
		}
	}
	if len(found) < 50 {
		t.Errorf("only %d resources found", len(found))
	}
	return found
}

func decodeJSON(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
}

type rawList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// compareReads compares lists, objects, their metadata and watches of a resource. There are no
// Tables in CBOR.
func (s *server) compareReads(ctx context.Context, t *testing.T, r resource) {
	s.same(ctx, t, r.path, typeJSON, typeCBOR, func(text []byte) []byte { return assemble(t, text, r.gvk) })
	s.same(ctx, t, r.path, typeJSON+asList, typeCBOR+asList, func(text []byte) []byte { return transcode(t, text, cbor.Untyped) })
	var list metav1.PartialObjectMetadataList
	decodeJSON(t, s.get(ctx, t, r.path, typeJSON), &list)
	for _, item := range list.Items {
		path := objectPath(r.path, &item)
		s.same(ctx, t, path, typeJSON, typeCBOR, func(text []byte) []byte { return transcode(t, text, cbor.ShapeOf(r.gvk)) })
		s.same(ctx, t, path, typeJSON+asPartial, typeCBOR+asPartial, func(text []byte) []byte { return transcode(t, text, cbor.Untyped) })
	}
	query := url.Values{
		"watch": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {"0"},
	}
	s.sameEvents(ctx, t, r.path+"?"+query.Encode(), "", cbor.ShapeOf(r.gvk))
	s.sameEvents(ctx, t, r.path+"?"+query.Encode(), asPartial, cbor.Untyped)
}

func objectPath(listPath string, o *metav1.PartialObjectMetadata) string {
	if o.Namespace != "" {
		i := strings.LastIndexByte(listPath, '/')
		listPath = listPath[:i] + "/namespaces/" + o.Namespace + listPath[i:]
	}
	return listPath + "/" + url.PathEscape(o.Name)
}

// transcode returns the CBOR response for a JSON response.
func transcode(t *testing.T, text []byte, shape cbor.Shape) []byte {
	t.Helper()
	out, err := cbor.Append([]byte(cbor.SelfDescribed), text, shape)
	if err != nil {
		t.Fatalf("%v: %.500s", err, text)
	}
	return out
}

// assemble builds a list from items that are transcoded one by one, each with its type, as they are
// in a cache.
func assemble(t *testing.T, text []byte, gvk schema.GroupVersionKind) []byte {
	t.Helper()
	var list rawList
	decodeJSON(t, text, &list)
	meta, err := cbor.Append(nil, list.Metadata, cbor.Untyped)
	if err != nil {
		t.Fatal(err)
	}
	out := cbor.AppendListHead(nil, list.APIVersion, list.Kind, meta, len(list.Items))
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	for _, item := range list.Items {
		if custom := bytes.HasPrefix(item, []byte(`{"apiVersion":`)); custom {
			if out, err = cbor.Append(out, item, cbor.Untyped); err != nil {
				t.Fatal(err)
			}
			continue
		}
		item = append(fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind, apiVersion), item[1:]...)
		object, err := cbor.Append(nil, item, cbor.ShapeOf(gvk))
		if err != nil {
			t.Fatal(err)
		}
		offset, err := cbor.AfterType(object)
		if err != nil {
			t.Fatal(err)
		}
		out = append(cbor.AppendItemHead(out, object), object[offset:]...)
	}
	return out
}

// same compares the response in CBOR with the transcoded response in JSON.
func (s *server) same(ctx context.Context, t *testing.T, path, jsonType, cborType string, make func(text []byte) []byte) {
	t.Helper()
	want, got, same := steady.Compare(
		func() []byte { return cbortest.Sorted(t, s.get(ctx, t, path, cborType)) },
		func() []byte { return cbortest.Sorted(t, make(s.get(ctx, t, path, jsonType))) },
		bytes.Equal)
	if !same {
		t.Errorf("GET %s, %s:\n got %s\nwant %s", path, cborType, cbortest.Diagnose(got), cbortest.Diagnose(want))
	}
}

// sameEvents compares the events of a watch up to the bookmark that ends the initial ones.
func (s *server) sameEvents(ctx context.Context, t *testing.T, path, as string, shape cbor.Shape) {
	t.Helper()
	want, got, same := steady.Compare(
		func() (all []byte) {
			for _, event := range s.cborEvents(ctx, t, path, typeCBOR+as) {
				all = append(all, cbortest.Sorted(t, event)...)
			}
			return all
		},
		func() (all []byte) {
			for _, line := range s.jsonEvents(ctx, t, path, typeJSON+as) {
				all = append(all, cbortest.Sorted(t, frame(t, line, shape))...)
			}
			return all
		},
		bytes.Equal)
	if !same {
		t.Errorf("GET %s, %s:\n got %s\nwant %s", path, as, got, want)
	}
}

// frame returns the CBOR event for a line of a watch in JSON.
func frame(t *testing.T, line []byte, shape cbor.Shape) []byte {
	t.Helper()
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	decodeJSON(t, line, &event)
	out, err := cbor.Append(cbor.AppendFrameHead(nil, event.Type), event.Object, shape)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *server) jsonEvents(ctx context.Context, t *testing.T, path, accept string) (events [][]byte) {
	t.Helper()
	body := s.watch(ctx, t, path, accept, typeJSON)
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var event json.RawMessage
		if err := d.Decode(&event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
		if bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			return events
		}
	}
}

func (s *server) cborEvents(ctx context.Context, t *testing.T, path, accept string) (events [][]byte) {
	t.Helper()
	body := s.watch(ctx, t, path, accept, "application/cbor-seq")
	defer body.Close()
	var stream bytes.Buffer // the original bytes: the frame reader removes the tag
	frames := serializer.NewFramer().NewFrameReader(io.NopCloser(io.TeeReader(body, &stream)))
	room := make([]byte, 4<<20)
	for {
		n, err := frames.Read(room)
		if err != nil {
			t.Fatal(err)
		}
		event := bytes.Clone(stream.Next(len(cbor.SelfDescribed) + n))
		if !bytes.Equal(event, append([]byte(cbor.SelfDescribed), room[:n]...)) {
			t.Fatalf("GET %s: an event in %x", path, event)
		}
		events = append(events, event)
		if bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			return events
		}
	}
}

func (s *server) watch(ctx context.Context, t *testing.T, path, accept, wantType string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != wantType {
		t.Fatalf("GET %s, %s: %s, %s", path, accept, resp.Status, got)
	}
	return resp.Body
}
