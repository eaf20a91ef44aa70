package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// shardView returns a snapshot of n objects with an index, and the filter of a part of them.
func shardView(tb testing.TB, n int, key, end string) (*Snapshot, *object.Filter) {
	tb.Helper()
	schema, v := object.CustomSchema(nil), &Snapshot{tree: NewTree()}
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
	v.shards[selector.Key()] = hashBy(selector.Key()).build(v)
	return v, &object.Filter{Shard: selector}
}

// TestShardIndexIsUsedIfCheaper checks that the index is used only if it is cheaper than a scan: a
// small page must not cost the whole shard, nor a shard of nearly all objects sorting them.
func TestShardIndexIsUsedIfCheaper(t *testing.T) {
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
		cancel := Cancellation{Context: context.Background()}
		objs, ok := v.SelectShard(f, c.namespace, c.from, c.limit, &cancel)
		if ok != c.want {
			t.Errorf("%s: read from the index %v", c.name, ok)
		}
		if held := shardPostings(v.shards[f.Shard.Key()], f.Shard).count; ok && c.namespace == "" && held != len(objs) {
			t.Errorf("%s: %d objects, counted %d", c.name, len(objs), held)
		}
	}
}

// TestShardIndexWhileItChanges reads shards of current and past snapshots while objects are
// created, changed, deleted and rehashed, and the index is built and dropped. Each shard must be
// that of its snapshot.
func TestShardIndexWhileItChanges(t *testing.T) {
	const objects, writes = 600, 2000
	schema, random := object.CustomSchema(nil), rand.New(rand.NewPCG(1, 2))
	pod := func(i, rv int) *object.Object {
		o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"namespace":"ns-%d","name":"pod-%03d","uid":"%08x","resourceVersion":"%d"}}`, i%3, i, random.Uint32(), rv))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var background, readers sync.WaitGroup
	var content atomic.Uint64
	s := New(api.JSON, Options{History: watchmux.Options{MaxAge: time.Hour, MaxBytes: 1 << 20, MaxEvents: 1 << 16}, SnapshotAge: time.Hour, SnapshotBytes: 1 << 30, Contents: &content, Spawn: func(f func()) { background.Go(f) }})
	tree := NewTree()
	for i := range objects {
		tree.Set(pod(i, i+1))
	}
	s.Install(&List{Tree: tree, RV: objects})
	selector, err := shard.Parse("shardRange(object.metadata.uid, '0x2000000000000000', '0x2800000000000000') || shardRange(object.metadata.uid, '0xf000000000000000', '0x10000000000000000')")
	if err != nil {
		t.Fatal(err)
	}
	filter, done := &object.Filter{Shard: selector}, make(chan struct{})
	var found atomic.Int64
	read := func(v *Snapshot) {
		cancel := Cancellation{Context: context.Background()}
		got, ok := v.SelectShard(filter, "", "", 0, &cancel)
		if !ok {
			return
		}
		found.Add(1)
		var want []*object.Object
		v.Ascend("", "", func(o *object.Object) bool {
			if filter.Matches(o) {
				want = append(want, o)
			}
			return true
		})
		if !slices.Equal(got, want) {
			t.Errorf("at %d: %d objects, want %d", v.rv, len(got), len(want))
		}
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				s.WantShard(selector, time.Now())
				v := s.Current()
				read(v)
				s.Retain(v, time.Now())
				if old, err := s.AppliedAt(v.rv-min(v.rv-objects, 3), time.Now()); err == nil {
					read(old)
				}
			}
		})
	}
	for n := range writes {
		i, rv := random.IntN(objects), objects+n+1
		kind := []api.EventType{api.Added, api.Modified, api.Deleted}[random.IntN(3)]
		if err := s.Apply(kind, pod(i, rv)); err != nil {
			t.Fatal(err)
		}
		if n%100 == 99 {
			s.DropUnused(time.Now().Add(indexIdle))
		}
	}
	for found.Load() == 0 && !t.Failed() {
		s.WantShard(selector, time.Now())
		runtime.Gosched()
	}
	close(done)
	readers.Wait()
	background.Wait()
	if broken := s.CheckInvariants(); broken != "" {
		t.Error(broken)
	}
}

// TestShardIndexOfPastVersions checks that a version made by undoing history has a shard index too.
func TestShardIndexOfPastVersions(t *testing.T) {
	schema, content := object.CustomSchema(nil), new(atomic.Uint64)
	pod := func(i, rv int, uid string) *object.Object {
		o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"namespace":"ns","name":"pod-%03d","uid":"%s","resourceVersion":"%d"}}`, i, uid, rv))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var background sync.WaitGroup
	s := New(api.JSON, Options{History: watchmux.Options{MaxAge: time.Hour, MaxBytes: 1 << 20, MaxEvents: 1 << 16}, SnapshotAge: time.Hour, SnapshotBytes: 1 << 30, Contents: content, Spawn: func(f func()) { background.Go(f) }})
	const objects = 2 * smallCollection
	tree := NewTree()
	for i := range objects {
		tree.Set(pod(i, i+1, fmt.Sprint(i)))
	}
	s.Install(&List{Tree: tree, RV: objects})
	selector, err := shard.Parse("shardRange(object.metadata.uid, '0x0000000000000000', '0x1000000000000000')")
	if err != nil {
		t.Fatal(err)
	}
	s.WantShard(selector, time.Now())
	background.Wait()
	for i, change := range []struct {
		kind api.EventType
		o    *object.Object
	}{
		{api.Modified, pod(1, objects+1, "1")}, {api.Deleted, pod(2, objects+2, "2")}, {api.Added, pod(2, objects+3, "again")},
		{api.Added, pod(objects, objects+4, "new")}, {api.Modified, pod(3, objects+5, "another")}, {api.Deleted, pod(objects, objects+6, "new")},
	} {
		if err := s.Apply(change.kind, change.o); err != nil {
			t.Fatal(i, err)
		}
	}
	for rv := uint64(objects + 6); rv >= objects; rv-- {
		v, err := s.AppliedAt(rv, time.Now())
		if err != nil {
			t.Fatal(rv, err)
		}
		var want []string
		v.Ascend("", "", func(o *object.Object) bool {
			want = append(want, fmt.Sprintf("%016x %s %d", o.ShardHash(shard.UID), o.Key, o.RV))
			return true
		})
		slices.Sort(want)
		var got []string
		v.shards[shard.UID].Scan(func(o *object.Object) bool {
			got = append(got, fmt.Sprintf("%016x %s %d", o.ShardHash(shard.UID), o.Key, o.RV))
			return true
		})
		if !slices.Equal(got, want) {
			t.Errorf("at %d the index has %d objects, not just the %d of the view", rv, len(got), len(want))
		}
	}
	if broken := s.CheckInvariants(); broken != "" {
		t.Error(broken)
	}
}

// BenchmarkShardOf selects a shard of 100,000 objects with the index and by a scan.
func BenchmarkShardOf(b *testing.B) {
	for name, end := range map[string]string{"an eighth": "0x2000000000000000", "a 64th": "0x0400000000000000"} {
		v, f := shardView(b, 100_000, "uid", end)
		cancel := Cancellation{Context: context.Background()}
		b.Run(name+" by the index", func(b *testing.B) {
			for b.Loop() {
				if _, ok := v.SelectShard(f, "", "", 0, &cancel); !ok {
					b.Fatal("the index was not used")
				}
			}
		})
		b.Run(name+" by all", func(b *testing.B) {
			for b.Loop() {
				var objs []*object.Object
				v.Ascend("", "", func(o *object.Object) bool {
					if f.Matches(o) {
						objs = append(objs, o)
					}
					return true
				})
			}
		})
	}
}

// TestPanickingIndexIsDropped checks that an index whose construction panics is dropped and
// collects no changes.
func TestPanickingIndexIsDropped(t *testing.T) {
	s := New(api.JSON, Options{Contents: new(atomic.Uint64), Spawn: func(func()) {}})
	x, byHash := &index{order: valueOfTerm(&object.Equality{Kind: object.LabelTerm, Key: "app"})}, &index{order: hashBy(0)}
	s.mu.indexes.byKey = map[indexKey]*index{{object.LabelTerm, "app"}: x}
	s.mu.indexes.shards[0] = byHash
	for _, build := range []func(){func() { s.buildIndex(x, nil) }, func() { s.buildIndex(byHash, nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			build()
		}()
	}
	if len(s.mu.indexes.byKey) != 0 || s.mu.indexes.shards[0] != nil {
		t.Errorf("%v, %v", s.mu.indexes.byKey, s.mu.indexes.shards[0])
	}
}
