package console

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// revisionOf is how many changes the store of a standalone has seen.
func revisionOf(f figures) float64 { return f.sum("kubeweir_store_revision") }

func (c *Console) store(a *ask) (any, error) {
	views, err := c.look(a.now, "")
	if err != nil {
		return nil, err
	}
	f, p := c.process(a.now, views), c.pastOf("")
	const prefix = "kubeweir_store_"
	s := &Store{
		At: a.now, Engine: "embedded", Available: f.sum(prefix+"available") > 0,
		DiskBytes: f.sum(prefix + "disk_bytes"), Keys: f.sum(prefix + "keys"), Revision: revisionOf(f),
		Compacted: f.sum(prefix + "compacted_revision"), Compactions: f.sum(prefix + "compactions_total"),
		Commit: Commits{Seconds: f.mean(prefix + "commit_seconds"), Changes: f.mean(prefix + "commit_changes")},
		Queued: f.sum(prefix + "queued_changes"), IndexBytes: f.sum(prefix + "index_bytes"), RingBytes: f.sum(prefix + "ring_bytes"),
		Watchers: f.sum(prefix + "watchers"), Expired: f.sum(prefix + "expired_total"), Types: []StoreType{},
		Series: StoreSeries{Step: int(sampleStep / time.Second), WriteRate: p.samples.points(func(before, now *sample) *float64 {
			return grown(before.writes, now.writes, now.at.Sub(before.at))
		})},
	}
	if free := f.sum(prefix + "disk_free_bytes"); !math.IsInf(free, 0) {
		s.DiskFree = &free
	}
	if f["kubeweir_etcd_available"] != nil {
		s.Engine, s.Available = "etcd", f.sum("kubeweir_etcd_available") > 0
		s.Compacted = f.sum("kubeweir_etcd_compacted_revision")
	}
	s.Writes = p.figure(a.now, "writes", s.Revision)
	held := heldTypes(views)
	if c.Types != nil {
		s.Types, s.TypesNote = c.types(a.now)
		s.Types = held.measure(s.Types)
		return s, nil
	}
	s.Types = held.list()
	s.TypesNote = "The objects are in etcd, whose own metrics tell its size and rate. These are the types that the cache holds."
	return s, nil
}

// heldType is what the cache holds of a type.
type heldType struct {
	encoding api.Encoding
	objects  int
	bytes    int64
}

// typesHeld are the types of which the cache has all objects. How large those of a type are is not counted by the store, which
// would have to read what each change replaces, but by the cache, of what it holds anyway.
type typesHeld map[schema.GroupResource]heldType

// heldTypes finds them; of a type in both encodings what is in protobuf counts, which is what the store has of most.
func heldTypes(views []*view) typesHeld {
	held := make(typesHeld)
	for _, v := range views {
		for i := range v.collections {
			c := &v.collections[i]
			gr := c.Resource.GroupResource()
			complete := c.State.Phase == reflector.Synced || c.State.Phase == reflector.Stale
			if before, ok := held[gr]; complete && (!ok || before.encoding != api.Protobuf) {
				held[gr] = heldType{c.Encoding, c.Objects, c.Bytes}
			}
		}
	}
	return held
}

// measure is types with the bytes of those that are held. The store names those of Kubernetes by their resource alone.
func (held typesHeld) measure(types []StoreType) []StoreType {
	custom := make(map[schema.GroupResource]bool)
	for _, t := range types {
		custom[schema.GroupResource{Group: t.Group, Resource: t.Resource}] = t.Group != ""
	}
	ungrouped := make(map[string]heldType)
	for gr, h := range held {
		// Events are the same objects in two groups, of which one may have just begun to be held.
		if !custom[gr] && h.objects >= ungrouped[gr.Resource].objects {
			ungrouped[gr.Resource] = h
		}
	}
	measured := slices.Clone(types)
	for i := range measured {
		t := &measured[i]
		h, ok := held[schema.GroupResource{Group: t.Group, Resource: t.Resource}]
		if t.Group == "" {
			h, ok = ungrouped[t.Resource]
		}
		if ok {
			t.Bytes = &h.bytes
		}
	}
	return measured
}

// list has all types that are held.
func (held typesHeld) list() []StoreType {
	types := make([]StoreType, 0, len(held))
	for gr, h := range held {
		types = append(types, StoreType{Group: gr.Group, Resource: gr.Resource, Objects: h.objects, Bytes: &h.bytes})
	}
	slices.SortFunc(types, func(a, b StoreType) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
	return types
}

// typesFresh is for how long the counts of types are good: all keys are counted for them.
const typesFresh = 10 * time.Second

func (c *Console) types(now time.Time) ([]StoreType, string) {
	if now.Sub(c.ofTypes.at) >= typesFresh {
		c.ofTypes.at = now
		c.ofTypes.list, c.ofTypes.note = c.Types()
	}
	if c.ofTypes.list == nil {
		return []StoreType{}, c.ofTypes.note
	}
	return c.ofTypes.list, c.ofTypes.note
}
