package read

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// BenchmarkWithin selects the objects of 1,000 of 5,000 namespaces with 30 objects each, as a list
// and as a page of 500.
func BenchmarkWithin(b *testing.B) {
	var all, some []string
	for i := range 5000 {
		all = append(all, fmt.Sprintf("team-%d", i))
		if i%5 == 0 {
			some = append(some, all[i])
		}
	}
	schema, tree := object.CustomSchema(nil), store.NewTree()
	for _, namespace := range all {
		for i := range 30 {
			o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":"o%d","resourceVersion":"1"}}`, namespace, i))
			if err != nil {
				b.Fatal(err)
			}
			tree.Set(o)
		}
	}
	held := store.New(api.JSON, store.Options{Contents: new(atomic.Uint64)})
	held.Install(&store.List{Tree: tree, RV: 1})
	v := held.Latest()
	f := &object.Filter{Within: object.NewNamespaces(some, false)}
	for name, limit := range map[string]int64{"all": 0, "a page": 500} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := &listRequest{Request: &Request{Options: api.ListOptions{Limit: limit}}, filter: f}
				s, err := q.selectFrom(b.Context(), v, v.RV(), "", nil)
				if err != nil {
					b.Fatal(err)
				}
				if limit == 0 && len(s.Objects) != 30_000 {
					b.Fatal(len(s.Objects))
				}
			}
		})
	}
	b.Run("NewNamespaces", func(b *testing.B) {
		for b.Loop() {
			object.NewNamespaces(some, false)
		}
	})
}
