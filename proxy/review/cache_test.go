package review

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestCacheExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := NewCache[string, int](64)
		c.Put("a", 1, c.Generation(), 10*time.Second, time.Minute)
		if v, ok := c.Get("a"); !ok || v != 1 {
			t.Fatalf("get = %d, %v; want 1", v, ok)
		}
		time.Sleep(10 * time.Second)
		if _, ok := c.Get("a"); ok {
			t.Error("found fresh after its TTL")
		}
		if v, ok := c.GetStale("a"); !ok || v != 1 {
			t.Errorf("getStale = %d, %v; want 1 while it is kept", v, ok)
		}
		time.Sleep(50 * time.Second)
		if _, ok := c.GetStale("a"); ok {
			t.Error("found stale after it was kept")
		}
	})
}

func TestCacheGenerations(t *testing.T) {
	c := NewCache[string, int](64)
	gen := c.Generation()
	c.Put("a", 1, gen, time.Hour, 0)
	c.DropAll()
	if _, ok := c.Get("a"); ok {
		t.Error("an entry outlived dropAll")
	}
	c.Put("a", 2, gen, time.Hour, 0)
	if _, ok := c.Get("a"); ok {
		t.Error("an answer to a question from before dropAll was stored")
	}
	if n := c.Len(); n != 0 {
		t.Errorf("len = %d after dropAll, want 0", n)
	}
}

func TestCacheIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const size = 4 * cacheShards
		c := NewCache[int, int](size)
		for i := range 100 * size {
			c.Put(i, i, c.Generation(), time.Hour, 0)
			if n := c.Len(); n > size {
				t.Fatalf("%d entries after %d puts, want at most %d", n, i+1, size)
			}
			if v, ok := c.Get(i); !ok || v != i {
				t.Fatalf("the entry just put is not there")
			}
		}
		// Dead entries go before living ones.
		time.Sleep(time.Hour)
		for i := range size {
			c.Put(-1-i, i, c.Generation(), time.Hour, 0)
		}
		dead := 0
		for i := range 100 * size {
			if _, ok := c.Get(i); ok {
				dead++
			}
		}
		if dead != 0 {
			t.Errorf("%d dead entries found", dead)
		}
	})
}

// TestCacheIsShared: who has most makes room for others, and for themselves.
func TestCacheIsShared(t *testing.T) {
	c := NewCache[string, int](32 * cacheShards)
	put := func(owner, key string) { c.PutFor(owner, key, 1, c.Generation(), time.Hour, 0) }
	for i := range 8 {
		put("calm", strconv.Itoa(i))
	}
	for i := range 100 * cacheShards {
		put("loud", "loud"+strconv.Itoa(i))
	}
	for i := range 8 {
		if _, ok := c.Get(strconv.Itoa(i)); !ok {
			t.Errorf("entry %d had to make room", i)
		}
	}
	for i := range c.shards {
		s := &c.shards[i]
		owned := 0
		for _, n := range s.mu.owned {
			owned += n
		}
		if owned != len(s.mu.entries) {
			t.Errorf("shard %d: %v of %d entries", i, s.mu.owned, len(s.mu.entries))
		}
	}
	for i := range 100 {
		put("new", "new"+strconv.Itoa(i))
		if _, ok := c.Get("new" + strconv.Itoa(i)); !ok {
			t.Fatal("there is no room for a newcomer")
		}
	}
}
