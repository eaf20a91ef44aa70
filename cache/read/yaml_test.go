package read_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// TestYAML compares gets and lists in YAML with upstream's serializer, and Tables with their JSON.
func TestYAML(t *testing.T) {
	b := newReadBench(t)
	b.fill(40, 900)
	read := func(gvr schema.GroupVersionResource, path string, rep api.Representation, coding api.Compression) (*api.Response, string) {
		t.Helper()
		req := cachetest.ReadRequest(t, path, rep)
		req.Compression = coding
		read := b.reader.List
		if req.Name != "" {
			read = b.reader.Get
		}
		resp, err := read(t.Context(), b.collection(gvr, api.JSON), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(cachetest.Body(t, resp))
	}
	for gvr, name := range map[schema.GroupVersionResource]string{cachetest.Pods: "web-00000", cachetest.Widgets: "widget-00000"} {
		for _, path := range []string{"?resourceVersion=0", "nowhere?resourceVersion=0", "ns-0/" + name + "?resourceVersion=0"} {
			for _, rep := range []api.Representation{{}, {Transform: api.PartialMetadata}, {Transform: api.Table}, {Transform: api.Table, IncludeObject: api.IncludeObjectFull}} {
				_, inJSON := read(gvr, path, rep, api.Identity)
				rep.YAML = true
				resp, got := read(gvr, path, rep, api.Gzip)
				want, err := yaml.JSONToYAML([]byte(inJSON))
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) || resp.Header.Get("Content-Type") != "application/yaml" {
					t.Errorf("%s %s %+v: %v\n got %.300q\nwant %.300q", gvr.Resource, path, rep, resp.Header, got, want)
				}
			}
		}
	}

	var upstream bytes.Buffer
	scheme := testScheme()
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	list.ResourceVersion = listMetaOf(t, []byte(func() string {
		_, s := read(cachetest.Pods, "?resourceVersion=0", api.Representation{}, api.Identity)
		return s
	}())).ResourceVersion
	for _, o := range b.source.Objects(cachetest.Pods) {
		list.Items = append(list.Items, *partial(o))
	}
	if err := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true}).Encode(runtime.Object(list), &upstream); err != nil {
		t.Fatal(err)
	}
	if _, got := read(cachetest.Pods, "?resourceVersion=0", api.Representation{Transform: api.PartialMetadata, YAML: true}, api.Identity); got != upstream.String() {
		t.Errorf("got  %.400q\nwant %.400q", got, upstream.String())
	}
}

// TestYAMLIsBounded checks that expensive bodies are forwarded, and that large ones are compressed
// as a whole.
func TestYAMLIsBounded(t *testing.T) {
	b := newReadBench(t)
	pod := cachetest.Pod("a/large", "")
	pod.Annotations = map[string]string{"x": strings.Repeat("y", 300<<10)}
	b.source.Create(cachetest.Pods, pod)
	pod.Name, pod.Annotations["x"] = "larger", strings.Repeat("y", 1<<20)
	b.source.Create(cachetest.Pods, pod)
	c := b.collection(cachetest.Pods, api.JSON)
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		req := cachetest.ReadRequest(t, "a/large?resourceVersion=0", api.Representation{YAML: true})
		req.Compression = coding
		resp, err := b.reader.Get(t.Context(), c, req)
		if err != nil || resp.Header.Get("Content-Encoding") != coding.String() {
			t.Fatalf("%v, %v", resp, err)
		}
		if body := cachetest.Body(t, resp); !bytes.HasPrefix(body, []byte("apiVersion: v1\nkind: Pod\n")) || len(body) < 300<<10 {
			t.Errorf("%.100q", body)
		}
	}
	_, err := b.reader.Get(t.Context(), c, cachetest.ReadRequest(t, "a/larger?resourceVersion=0", api.Representation{YAML: true}))
	if !errors.Is(err, read.ErrForward) || read.ForwardReason(err) != reason.Representation {
		t.Error(err)
	}
}
