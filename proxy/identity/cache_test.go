package identity

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestCacheExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newTTLCache[string, int](64)
		c.put("a", 1, c.generation(), 10*time.Second, time.Minute)
		if v, ok := c.get("a"); !ok || v != 1 {
			t.Fatalf("get = %d, %v; want 1", v, ok)
		}
		time.Sleep(10 * time.Second)
		if _, ok := c.get("a"); ok {
			t.Error("found fresh after its TTL")
		}
		if v, ok := c.getStale("a"); !ok || v != 1 {
			t.Errorf("getStale = %d, %v; want 1 while it is kept", v, ok)
		}
		time.Sleep(50 * time.Second)
		if _, ok := c.getStale("a"); ok {
			t.Error("found stale after it was kept")
		}
	})
}

func TestCacheGenerations(t *testing.T) {
	c := newTTLCache[string, int](64)
	gen := c.generation()
	c.put("a", 1, gen, time.Hour, 0)
	c.dropAll()
	if _, ok := c.get("a"); ok {
		t.Error("an entry outlived dropAll")
	}
	c.put("a", 2, gen, time.Hour, 0)
	if _, ok := c.get("a"); ok {
		t.Error("an answer to a question from before dropAll was stored")
	}
	if n := c.len(); n != 0 {
		t.Errorf("len = %d after dropAll, want 0", n)
	}
}

func TestCacheIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const size = 4 * cacheShards
		c := newTTLCache[int, int](size)
		for i := range 100 * size {
			c.put(i, i, c.generation(), time.Hour, 0)
			if n := c.len(); n > size {
				t.Fatalf("%d entries after %d puts, want at most %d", n, i+1, size)
			}
			if v, ok := c.get(i); !ok || v != i {
				t.Fatalf("the entry just put is not there")
			}
		}
		// Dead entries go before living ones.
		time.Sleep(time.Hour)
		for i := range size {
			c.put(-1-i, i, c.generation(), time.Hour, 0)
		}
		dead := 0
		for i := range 100 * size {
			if _, ok := c.get(i); ok {
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
	c := newTTLCache[string, int](32 * cacheShards)
	put := func(owner, key string) { c.putFor(owner, key, 1, c.generation(), time.Hour, 0) }
	for i := range 8 {
		put("calm", strconv.Itoa(i))
	}
	for i := range 100 * cacheShards {
		put("loud", "loud"+strconv.Itoa(i))
	}
	for i := range 8 {
		if _, ok := c.get(strconv.Itoa(i)); !ok {
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
		if _, ok := c.get("new" + strconv.Itoa(i)); !ok {
			t.Fatal("there is no room for a newcomer")
		}
	}
}
