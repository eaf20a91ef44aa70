package upstream

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// testReferences compares the names and versions of all objects, listed at once and in pages, with
// the objects of every resource.
func testReferences(t *testing.T, client *upstream.Client, catalog *discovery.Catalog) {
	src := client.Source()
	compared := 0
	for _, r := range resourcesOf(catalog) {
		if !r.Supports("list") || !r.Supports("watch") || r.Resource == "leases" || r.Resource == "events" {
			continue // leases change all the time
		}
		res := &source.Resource{
			GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced, Custom: r.Group == "ex.com",
			Schema: object.SchemaFor(r.GroupVersionResource),
		}
		var want, got []string
		meta, err := src.List(testContext(t), res, api.JSON, source.ListOptions{}, func(item []byte) error {
			o, err := res.Schema.Decode(api.JSON, item)
			if err == nil {
				want = append(want, fmt.Sprint(o.Key, "@", o.RV))
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", res, err)
			continue
		}
		opts := source.ListOptions{Limit: 7}
		for {
			page, err := src.ListVersions(testContext(t), res, opts, func(key string, rv uint64) error {
				got = append(got, fmt.Sprint(key, "@", rv))
				return nil
			})
			if err != nil || page.ResourceVersion < meta.ResourceVersion || (page.RemainingItemCount == nil) != (page.Continue == "") {
				t.Errorf("%s: %+v, %v", res, page, err)
				break
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", res, got, want)
		}
		compared += len(got)
	}
	if compared < 150 {
		t.Errorf("compared only %d objects", compared)
	}
	n := 0
	opts := source.ListOptions{Namespace: "default", FieldSelector: "metadata.name=c7"}
	if _, err := src.ListVersions(testContext(t), configMaps(), opts, func(string, uint64) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("one of a namespace: %d, %v", n, err)
	}
}
