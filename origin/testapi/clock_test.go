package testapi

import (
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// TestClock checks that a store deletes what expires when its clock is advanced, and nothing else.
func TestClock(t *testing.T) {
	c := NewClock()
	engine, err := embedded.Open(embedded.Options{Dir: "data", FS: embedded.InMemory(), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	put := func(key string, ttl time.Duration) uint64 {
		t.Helper()
		revision, err := engine.Put(t.Context(), key, []byte("x"), storage.Precondition{}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	put("/a", time.Hour)
	put("/b", 3*time.Hour)
	last := put("/c", 0)
	watch, err := engine.Watch(t.Context(), storage.WatchOptions{Prefix: "/", After: last})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	for _, key := range []string{"/a", "/b"} {
		if err := c.Advance(2 * time.Hour); err != nil {
			t.Fatal(err)
		}
		batch, err := watch.Next(t.Context())
		if err != nil || len(batch.Events) != 1 || batch.Events[0].KV.Key != key {
			t.Errorf("%+v, %v; want the deletion of %s", batch, err, key)
		}
	}
	for _, by := range []time.Duration{0, -time.Hour, maxAdvance} {
		if err := c.Advance(by); err == nil {
			t.Errorf("advanced by %v", by)
		}
	}
}
