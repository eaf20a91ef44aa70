package query_test

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestQueryTypedCBOR checks that projected built-in objects and counts are the same in CBOR as in
// JSON for typed clients, redacted or not.
func TestQueryTypedCBOR(t *testing.T) {
	b := newQueryBench(t)
	for i := range 20 {
		b.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/p-%02d", i), "node", "app=x"))
	}
	c := b.collection(cachetest.Pods, api.JSON)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	inCBOR, inJSON := serializer.NewSerializer(scheme, scheme), jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, jsonserializer.SerializerOptions{})
	for _, query := range []string{
		"fields=.metadata.name,.metadata.labels,.spec.containers[*].image,.status.phase", "countBy=.spec.nodeName,.status.phase", "limit=0&countBy=.status.phase",
		"fields=.metadata.creationTimestamp,.kind&limit=3&offset=2&sortBy=-.metadata.name&countBy=.metadata.namespace",
	} {
		for _, redacted := range []bool{false, true} {
			get := func(rep api.Representation) []byte {
				rep.Redacted = redacted
				resp, err := b.reader.List(t.Context(), c, listRequest(t, "default?resourceVersion=0&"+query, rep))
				if err != nil {
					t.Fatal(query, err)
				}
				return cachetest.Body(t, resp)
			}
			got, _, err := inCBOR.Decode(get(api.Representation{Encoding: api.CBOR}), nil, nil)
			if err != nil {
				t.Fatal(query, err)
			}
			want, _, err := inJSON.Decode(get(api.Representation{}), nil, nil)
			if err != nil {
				t.Fatal(query, err)
			}
			for _, list := range []runtime.Object{got, want} {
				list.(*corev1.PodList).Continue = "" // it contains the time
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s:\n got %+v\nwant %+v", query, got, want)
			}
		}
	}
}

// checkQueryInCBOR compares a response in CBOR with the one in JSON.
func (b *queryBench) checkQueryInCBOR(t *testing.T, c *cache.Collection, path string, inJSON []byte) {
	t.Helper()
	resp, err := b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{Encoding: api.CBOR}))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	body := cachetest.Body(t, resp)
	if length := resp.Length; length >= 0 && length != int64(len(body)) {
		t.Errorf("%s: %d bytes, said to be %d", path, len(body), length)
	}
	var got, want map[string]any
	if err := direct.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := utiljson.Unmarshal(inJSON, &want); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, list := range []map[string]any{got, want} {
		delete(list["metadata"].(map[string]any), "continue") // it contains the time
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s in CBOR:\n got %v\nwant %v", path, got, want)
	}
}
