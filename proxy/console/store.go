package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// typesPeriod is the minimum time between two counts of the types: each reads all keys.
const typesPeriod = 10 * time.Second

func (b *builder) store(m *moment) any {
	process, h := b.processMetrics(m), b.history("")
	sum := func(metric string) float64 { return process.sum("kubeweir_store_" + metric) }
	s := &Store{
		At: m.now, Engine: "embedded", Available: sum("available") > 0,
		DiskBytes: sum("disk_bytes"), DiskFree: finite(sum("disk_free_bytes")), Keys: sum("keys"), Revision: process.sum(storeRevision),
		Compacted: sum("compacted_revision"), Compactions: sum("compactions_total"),
		Commit: Commits{Seconds: process.mean("kubeweir_store_commit_seconds"), Changes: process.mean("kubeweir_store_commit_changes")},
		Queued: sum("queued_changes"), IndexBytes: sum("index_bytes"), RingBytes: sum("ring_bytes"),
		Watchers: sum("watchers"), Expired: sum("expired_total"),
		Series: StoreSeries{Step: int(samplePeriod / time.Second), WriteRate: rates(h.samples, "writes")},
	}
	if process["kubeweir_etcd_available"] != nil {
		s.Engine, s.Available = "etcd", process.sum("kubeweir_etcd_available") > 0
		s.Compacted = process.sum("kubeweir_etcd_compacted_revision")
	}
	s.Writes = Figure{Total: s.Revision, Rate: h.rate(m.now, "writes", s.Revision)}
	cached := cachedTypesOf(m.views)
	if b.Types == nil {
		s.Types = cached.list()
		s.TypesNote = "The store is etcd, which has metrics of its own for size and rates. These are the types that the cache holds."
		return s
	}
	if m.now.Sub(b.types.at) >= typesPeriod {
		b.types.at = m.now
		b.types.list, b.types.note = b.Types()
	}
	s.Types, s.TypesNote = cached.measure(b.types.list), b.types.note
	return s
}

// cachedType is the size of a type in the cache.
type cachedType struct {
	encoding api.Encoding
	objects  int
	bytes    int64
}

// cachedTypes are the types of which the cache has all objects. The sizes of types come from the
// cache: to count them, the store would have to read each object that a write replaces.
type cachedTypes map[schema.GroupResource]cachedType

// cachedTypesOf returns the types in the cache. If it has a type in both encodings, the size in
// protobuf counts, which is the encoding of most types in the store.
func cachedTypesOf(views []*view) cachedTypes {
	cached := make(cachedTypes)
	for _, v := range views {
		for i := range v.collections {
			c := &v.collections[i]
			gr := c.Resource.GroupResource()
			complete := c.State.Phase == reflector.Synced || c.State.Phase == reflector.Stale
			if before, ok := cached[gr]; complete && (!ok || before.encoding != api.Protobuf) {
				cached[gr] = cachedType{c.Encoding, c.Objects, c.Bytes}
			}
		}
	}
	return cached
}

// measure adds the sizes in the cache to types, whose Kubernetes types have no group.
func (cached cachedTypes) measure(types []StoreType) []StoreType {
	custom := make(map[schema.GroupResource]bool)
	for _, t := range types {
		custom[schema.GroupResource{Group: t.Group, Resource: t.Resource}] = t.Group != ""
	}
	ungrouped := make(map[string]cachedType)
	for gr, h := range cached {
		// Events are the same objects in two groups, one of which the cache may have only in part.
		if !custom[gr] && h.objects >= ungrouped[gr.Resource].objects {
			ungrouped[gr.Resource] = h
		}
	}
	measured := append([]StoreType{}, types...)
	for i := range measured {
		t := &measured[i]
		h, ok := cached[schema.GroupResource{Group: t.Group, Resource: t.Resource}]
		if t.Group == "" {
			h, ok = ungrouped[t.Resource]
		}
		if ok {
			t.Bytes = &h.bytes
		}
	}
	return measured
}

// list returns all types in the cache.
func (cached cachedTypes) list() []StoreType {
	types := make([]StoreType, 0, len(cached))
	for gr, h := range cached {
		types = append(types, StoreType{Group: gr.Group, Resource: gr.Resource, Objects: h.objects, Bytes: &h.bytes})
	}
	slices.SortFunc(types, func(a, b StoreType) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
	return types
}
