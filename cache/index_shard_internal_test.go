package cache

import (
	"context"
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// shardView is n objects with an index, and the filter of a part of them.
func shardView(tb testing.TB, n int, key, end string) (*View, *object.Filter) {
	tb.Helper()
	schema, v := object.CustomSchema(nil), &View{tree: newTree(byKey), pivots: new(pivots)}
	for i := range n {
		o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"namespace":"ns-%d","name":"pod-%06d","uid":"%08x-0000-4000-8000-%012x","resourceVersion":"1"}}`, i%2, i, i*2654435761&0xffffffff, i))
		if err != nil {
			tb.Fatal(err)
		}
		v.tree.Set(o)
	}
	selector, err := shard.Parse("shardRange(object.metadata." + key + ", '0x0000000000000000', '" + end + "')")
	if err != nil {
		tb.Fatal(err)
	}
	v.shards[selector.Key()] = newShardTree(selector.Key(), v)
	return v, &object.Filter{Shard: selector}
}

// TestShardIndexPays: the index is read only where that costs less than to look at the objects in their order. A page of
// a few must not cost the shard, nor a shard of nearly all objects that they are sorted again.
func TestShardIndexPays(t *testing.T) {
	const whole, half, small = "0x10000000000000000", "0x8000000000000000", "0x0400000000000000"
	for _, c := range []struct {
		name, key, end, namespace, from string
		limit                           int
		want                            bool
	}{
		{name: "a small part", key: "uid", end: small, want: true},
		{name: "half", key: "uid", end: half},
		{name: "all", key: "uid", end: whole},
		{name: "a small part of a namespace", key: "uid", end: small, namespace: "ns-1", want: true},
		{name: "a small page", key: "uid", end: small, limit: 3},
		{name: "a large page", key: "uid", end: small, limit: 1000, want: true},
		{name: "the rest is small", key: "uid", end: small, from: "ns-1/pod-003900"},
		{name: "few hashes of all objects", key: "namespace", end: whole},
		{name: "few hashes", key: "namespace", end: small, want: true},
	} {
		v, f := shardView(t, 4000, c.key, c.end)
		looking := search{ctx: context.Background()}
		objs, ok := v.shardOf(f, c.namespace, c.from, c.limit, &looking)
		if ok != c.want {
			t.Errorf("%s: read from the index %v", c.name, ok)
		}
		if held := countHashes(v.shards[f.Shard.Key()], f.Shard); ok && c.namespace == "" && held != len(objs) {
			t.Errorf("%s: %d objects, counted %d", c.name, len(objs), held)
		}
	}
}
