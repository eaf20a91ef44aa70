package query_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestQueryInProtobuf checks that the pages of a list in protobuf are those of the list in JSON, of
// one version whatever changes meanwhile, although each collection has a watch of its own.
func TestQueryInProtobuf(t *testing.T) {
	for _, n := range []int{60, 600} {
		b := newQueryBench(t)
		b.fillPhases(n)
		c := b.collection(cachetest.Pods, api.JSON)
		const path = "?sortBy=-.metadata.name&where=.status.phase!=Failed&limit=10"
		_, want := b.list(t, c, path[:len(path)-len("&limit=10")])
		var got []string
		version, next := "", ""
		for page := 0; page == 0 || next != ""; page++ {
			resp, err := b.reader.List(t.Context(), c, b.transformedRequest(t, path+next, api.Representation{Encoding: api.Protobuf}))
			if err != nil {
				t.Fatalf("page %d: %v", page, err)
			}
			var body runtime.Unknown
			if err := body.Unmarshal(bytes.TrimPrefix(cachetest.Body(t, resp), []byte("k8s\x00"))); err != nil {
				t.Fatal(err)
			}
			list := new(corev1.PodList)
			if err := list.Unmarshal(body.Raw); err != nil {
				t.Fatal(err)
			}
			if version == "" {
				version = list.ResourceVersion
			}
			if list.ResourceVersion != version {
				t.Fatalf("version %s, then %s", version, list.ResourceVersion)
			}
			for i := range list.Items {
				if got = append(got, list.Items[i].Name); list.Items[i].Spec.NodeName == "elsewhere" {
					t.Fatalf("page %d has a change after %s", page, version)
				}
			}
			next = ""
			if list.Continue != "" {
				next = "&continue=" + list.Continue
			}
			b.source.Update(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-%d/web-%05d", page%4, page), "elsewhere"))
			b.source.Delete(cachetest.Pods, fmt.Sprintf("ns-%d/web-%05d", (n/2+page)%4, n/2+page))
			b.collection(cachetest.Pods, api.JSON)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d:\n%v\nwant\n%v", n, got, want)
		}
	}
}

// backwards prints Tables sorted by descending name, as FlowSchemas have an order of their own.
type backwards struct{ table.Printer }

func (b backwards) Traits() table.Traits { return table.Traits{Sorted: true} }

func (b backwards) Row(raw []byte) (*table.Row, error) {
	var o metav1.PartialObjectMetadata
	if err := stdjson.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	key := []byte(o.Name)
	for i := range key {
		key[i] = 255 - key[i]
	}
	return table.NewRow([]table.Cell{{Value: o.Name}, table.Age(o.CreationTimestamp.Time)}, nil, string(key))
}

// TestQueryOfSortedTables checks that the order of a query overrides that of the Tables.
func TestQueryOfSortedTables(t *testing.T) {
	b := newQueryBench(t)
	b.res[cachetest.Pods].Printer = backwards{b.res[cachetest.Pods].Printer}
	b.fillPhases(9)
	c := b.collection(cachetest.Pods, api.JSON)
	for query, want := range map[string][]string{
		"":                                {"web-00008", "web-00007", "web-00006"},
		"&where=.metadata.name!=x":        {"web-00008", "web-00007", "web-00006"},
		"&sortBy=.metadata.name":          {"web-00000", "web-00001", "web-00002"},
		"&sortBy=.status.phase,-name":     {"web-00008", "web-00005", "web-00002"},
		"&sortBy=-.metadata.name&limit=2": {"web-00008", "web-00007"},
	} {
		for _, include := range []api.IncludeObject{api.IncludeMetadata, api.IncludeNone} {
			resp, err := b.reader.List(t.Context(), c, listRequest(t, "?resourceVersion=0"+query, api.Representation{Transform: api.Table, IncludeObject: include}))
			if err != nil {
				t.Fatal(err)
			}
			var list metav1.Table
			if err := stdjson.Unmarshal(cachetest.Body(t, resp), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, row := range list.Rows {
				got = append(got, row.Cells[0].(string))
			}
			if !slices.Equal(got[:min(len(got), len(want))], want) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
		}
	}
}
