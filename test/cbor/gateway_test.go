package cbor

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/steady"
)

// compareGateway compares the gateway's responses from its cache with those of the server.
func (s *server) compareGateway(ctx context.Context, t *testing.T, gateway *server, resources []resource) {
	for _, r := range resources {
		t.Run(strings.TrimPrefix(r.path, "/"), func(t *testing.T) {
			if resp := gateway.do(ctx, t, http.MethodGet, r.path+"?resourceVersion=0", map[string]string{"Accept": typeCBOR}, nil); resp.etag == "" {
				t.Error("the list is not from the cache")
			}
			s.sameItems(ctx, t, gateway, r.path+"?resourceVersion=0", typeCBOR)
			s.sameItems(ctx, t, gateway, r.path+"?resourceVersion=0", typeCBOR+asList)
			var list metav1.PartialObjectMetadataList
			decodeJSON(t, s.get(ctx, t, r.path, typeJSON), &list)
			for _, item := range list.Items {
				s.sameItems(ctx, t, gateway, objectPath(r.path, &item)+"?resourceVersion=0", typeCBOR)
				s.sameItems(ctx, t, gateway, objectPath(r.path, &item)+"?resourceVersion=0", typeCBOR+asPartial)
				s.sameItems(ctx, t, gateway, objectPath(r.path, &item), typeCBOR)
			}
			query := r.path + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0"
			for _, as := range []string{"", asPartial} {
				events := func(at *server, path string) any { return s.events(ctx, t, at, path, as) }
				if want, got, same := s.sameAsCached(ctx, t, gateway, query, events); !same {
					t.Errorf("GET %s, %s:\n got %v\nwant %v", query, as, got, want)
				}
			}
		})
	}
}

// startGateway starts a gateway in front of the cluster.
func startGateway(ctx context.Context, t *testing.T, cluster *realkube.Cluster) *server {
	t.Helper()
	g, err := realkube.StartGateway(ctx, cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	s := &server{config: g.AdminConfig()}
	if s.client, err = rest.HTTPClientFor(s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// events returns the events of a watch at a server without the bookmark, whose version differs
// between servers.
func (s *server) events(ctx context.Context, t *testing.T, at *server, path, as string) (events []any) {
	t.Helper()
	for _, event := range at.cborEvents(ctx, t, path, typeCBOR+as) {
		events = append(events, decodeCBOR(t, event))
	}
	return events[:len(events)-1]
}

func decodeCBOR(t *testing.T, item []byte) (v map[string]any) {
	t.Helper()
	if err := direct.Unmarshal(item, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// sameItems compares a list without its version, or an object.
func (s *server) sameItems(ctx context.Context, t *testing.T, gateway *server, path, accept string) {
	t.Helper()
	read := func(at *server, path string) any {
		response := decodeCBOR(t, at.get(ctx, t, path, accept))
		if _, ok := response["items"]; ok {
			delete(response["metadata"].(map[string]any), "resourceVersion")
		}
		return response
	}
	if want, got, same := s.sameAsCached(ctx, t, gateway, path, read); !same {
		t.Errorf("GET %s, %s:\n got %v\nwant %v", path, accept, got, want)
	}
}

// sameAsCached compares what the gateway and the server read at a path. With resourceVersion=0 the
// gateway may lag, so on a mismatch the comparison is repeated at the server's version.
func (s *server) sameAsCached(ctx context.Context, t *testing.T, gateway *server, path string, read func(at *server, path string) any) (want, got any, same bool) {
	t.Helper()
	oracle := func() any { return read(s, path) }
	want, got, same = steady.Compare(oracle, func() any { return read(gateway, path) }, reflect.DeepEqual)
	if same || !strings.Contains(path, "resourceVersion=0") {
		return want, got, same
	}
	return steady.Compare(oracle, func() any {
		var now metav1.PartialObjectMetadataList
		decodeJSON(t, s.get(ctx, t, "/api/v1/namespaces?limit=1", typeJSON), &now)
		return read(gateway, strings.Replace(path, "resourceVersion=0", "resourceVersion="+now.ResourceVersion, 1))
	}, reflect.DeepEqual)
}

// TestClients checks that a client-go that prefers CBOR works with a standalone and with a gateway,
// whether or not the upstream serves CBOR. Where it does not, the first write of a client gets 415,
// as in front of the upstream itself.
func TestClients(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, features.ClientsPreferCBOR, true)
	cluster, err := realkube.Start(ctx, realkube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	gateway, err := realkube.StartGateway(ctx, cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.Close)
	standalone, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standalone.Close)
	config, err := standalone.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"gateway": gateway.AdminConfig(), "standalone": config} {
		t.Run(name, func(t *testing.T) {
			t.Run("typed", func(t *testing.T) { typedClient(ctx, t, config) })
			t.Run("dynamic", func(t *testing.T) { dynamicClient(ctx, t, config) })
			t.Run("nothing but CBOR", func(t *testing.T) { onlyCBOR(ctx, t, config) })
		})
	}
}

func typedClient(ctx context.Context, t *testing.T, config *rest.Config) {
	secrets := must(kubernetes.NewForConfig(config)).CoreV1().Secrets("default")
	w := must(secrets.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=typed"}))
	defer w.Stop()
	created := must(firstWrite(func() (*corev1.Secret, error) {
		return secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "typed"}, Data: map[string][]byte{"a": {0, 255}}}, metav1.CreateOptions{})
	}))
	created.Data["b"] = []byte("é")
	updated := must(secrets.Update(ctx, created, metav1.UpdateOptions{}))
	got := must(secrets.Get(ctx, "typed", metav1.GetOptions{}))
	if !reflect.DeepEqual(got, updated) || string(got.Data["a"]) != "\x00\xff" || string(got.Data["b"]) != "é" {
		t.Errorf("got %v, updated %v", got, updated)
	}
	apply := applycorev1.Secret("typed", "default").WithData(map[string][]byte{"c": {1}})
	applied, err := secrets.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test"})
	if apierrors.IsUnsupportedMediaType(err) { // client-go does not apply in JSON then
		applied, err = secrets.Patch(ctx, "typed", types.ApplyYAMLPatchType, must(json.Marshal(apply)), metav1.PatchOptions{FieldManager: "test"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(applied.Data["c"]) != "\x01" || len(applied.Data) != 3 {
		t.Errorf("applied %v", applied)
	}
	list := must(secrets.List(ctx, metav1.ListOptions{ResourceVersion: applied.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
	if i := len(list.Items) - 1; i < 0 || !reflect.DeepEqual(list.Items[i].Data, applied.Data) {
		t.Errorf("list %v", list)
	}
	if err := secrets.Delete(ctx, "typed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Get(ctx, "typed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted} {
		event := <-w.ResultChan()
		if s, ok := event.Object.(*corev1.Secret); event.Type != want || !ok || string(s.Data["a"]) != "\x00\xff" {
			t.Errorf("%s: %v, want %s", event.Type, event.Object, want)
		}
	}
}

func dynamicClient(ctx context.Context, t *testing.T, config *rest.Config) {
	maps := must(dynamic.NewForConfig(config)).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	w := must(maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=dynamic"}))
	defer w.Stop()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "dynamic"}, "data": map[string]any{"a": "é"}, "binaryData": map[string]any{"b": "AP8="},
	}}
	created := must(firstWrite(func() (*unstructured.Unstructured, error) { return maps.Create(ctx, u, metav1.CreateOptions{}) }))
	got := must(maps.Get(ctx, "dynamic", metav1.GetOptions{ResourceVersion: created.GetResourceVersion()}))
	if !reflect.DeepEqual(got, created) || !reflect.DeepEqual(got.Object["binaryData"], u.Object["binaryData"]) {
		t.Errorf("got %v, created %v", got, created)
	}
	if event := <-w.ResultChan(); event.Type != watch.Added || !reflect.DeepEqual(event.Object, created) {
		t.Errorf("%s: %v, want %v", event.Type, event.Object, created)
	}
	list := must(maps.List(ctx, metav1.ListOptions{ResourceVersion: created.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
	if len(list.Items) == 0 {
		t.Error("the list is empty")
	}
	if err := maps.Delete(ctx, "dynamic", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// must panics if a client call fails.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// firstWrite writes again, in JSON, after the server has rejected CBOR.
func firstWrite[T any](write func() (T, error)) (T, error) {
	v, err := write()
	if apierrors.IsUnsupportedMediaType(err) {
		return write()
	}
	return v, err
}

// onlyCBOR checks that a client that accepts only CBOR gets it.
func onlyCBOR(ctx context.Context, t *testing.T, config *rest.Config) {
	s := &server{config: config, client: must(rest.HTTPClientFor(config))}
	for _, path := range []string{
		"/api/v1/namespaces/default", "/api/v1/namespaces/default?resourceVersion=0", "/api/v1/namespaces", "/api/v1/namespaces?limit=1", "/api/v1/namespaces?resourceVersion=0",
		"/apis/apps/v1/deployments",
	} {
		if v := decodeCBOR(t, s.get(ctx, t, path, typeCBOR)); v["kind"] == "" {
			t.Errorf("%s: %v", path, v)
		}
	}
	body := s.watch(ctx, t, "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Ddefault", typeCBOR, "application/cbor-seq")
	defer body.Close()
	room := make([]byte, 1<<20)
	n := must(serializer.NewFramer().NewFrameReader(body).Read(room))
	if event := decodeCBOR(t, room[:n]); event["type"] != "ADDED" || event["object"].(map[string]any)["kind"] != "Namespace" {
		t.Errorf("%v", event)
	}
	resp := s.do(ctx, t, http.MethodGet, "/api/v1/namespaces/none", map[string]string{"Accept": typeCBOR}, nil)
	if v := decodeCBOR(t, resp.body); resp.status != http.StatusNotFound || resp.contentType != typeCBOR || v["reason"] != "NotFound" {
		t.Errorf("%d %s %v", resp.status, resp.contentType, v)
	}
}
