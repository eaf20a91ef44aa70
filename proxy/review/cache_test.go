package review

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func add[K comparable](c *Cache[K, int], e Entry[K, int]) {
	e.Added = c.Now()
	c.Put(e)
}

func TestCacheExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := NewCache[string, int](64)
		add(c, Entry[string, int]{Key: "a", Value: 1, Generation: c.Generation(), TTL: 10 * time.Second, Keep: time.Minute})
		if v, ok := c.Get("a"); !ok || v != 1 {
			t.Fatalf("get = %d, %v; want 1", v, ok)
		}
		time.Sleep(10 * time.Second)
		if _, ok := c.Get("a"); ok {
			t.Error("found fresh after its TTL")
		}
		if e := c.Find("a"); e == nil || e.Value != 1 {
			t.Errorf("Find = %+v; want 1 while it is kept", e)
		}
		time.Sleep(50 * time.Second)
		if e := c.Find("a"); e != nil {
			t.Error("found stale after it was kept")
		}
	})
}

func TestCacheGenerations(t *testing.T) {
	c := NewCache[string, int](64)
	gen := c.Generation()
	add(c, Entry[string, int]{Key: "a", Value: 1, Generation: gen, TTL: time.Hour})
	c.DropAll()
	if _, ok := c.Get("a"); ok {
		t.Error("an entry outlived dropAll")
	}
	add(c, Entry[string, int]{Key: "a", Value: 2, Generation: gen, TTL: time.Hour})
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
			add(c, Entry[int, int]{Key: i, Value: i, Generation: c.Generation(), TTL: time.Hour})
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
			add(c, Entry[int, int]{Key: -1 - i, Value: i, Generation: c.Generation(), TTL: time.Hour})
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

// TestCacheIsShared: the owner with the most entries makes room for others, and for itself.
func TestCacheIsShared(t *testing.T) {
	c := NewCache[string, int](32 * cacheShards)
	put := func(owner, key string) {
		add(c, Entry[string, int]{Key: key, Owner: owner, Value: 1, Generation: c.Generation(), TTL: time.Hour})
	}
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
			t.Fatal("there is no room for a new owner")
		}
	}
}
