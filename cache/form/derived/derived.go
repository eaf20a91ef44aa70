// Package derived caches values that are derived from objects, within a budget of bytes, and
// ensures that no value is computed twice at the same time.
//
// Values live in slots. A slot names a form of an object or of a list, regardless of its version; a
// newer version replaces the older one. Outdated values therefore do not accumulate, and the value
// of a new version can reuse the unchanged parts of its predecessor.
//
// Package form uses it. It imports nothing of the cache.
package derived

import (
	"fmt"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Slot is the key of a value.
type Slot interface {
	comparable
	// Kind is an index of the kinds passed to New.
	Kind() int
	// IsExpensive is true if the next caller must find the value.
	IsExpensive() bool
	// Size is the size of its strings, in bytes.
	Size() int
}

// Cache caches values of any type by their slots. It is safe for concurrent use.
type Cache[S Slot] struct {
	// open guards entries against use after Close, which ristretto does not do itself.
	open struct {
		sync.RWMutex
		closed bool
	}
	entries *ristretto.Cache[uint64, *Entry[S]]
	seed    maphash.Seed

	making struct {
		sync.Mutex
		slots map[S]*making[S]
	}
	lookups *prometheus.CounterVec
	results [][2]prometheus.Counter // misses and hits by kind
}

// Entry is the value in a slot. It is immutable.
type Entry[S Slot] struct {
	slot S
	// Version is the version of the value.
	Version uint64
	Value   any
}

// making is a value under construction. When done is closed, entry is the value, or nil if building
// it failed or panicked.
type making[S Slot] struct {
	done  chan struct{}
	entry *Entry[S]
}

// New returns a Cache for budget bytes. kinds are the names of the kinds of slots in metrics.
func New[S Slot](budget int64, kinds []string) (*Cache[S], error) {
	c := &Cache[S]{seed: maphash.MakeSeed()}
	c.making.slots = make(map[S]*making[S])
	c.lookups = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_derived_lookups_total",
		Help: "Lookups of derived forms, by form and result (hit, miss).",
	}, []string{"form", "result"})
	for _, kind := range kinds {
		c.results = append(c.results, [2]prometheus.Counter{
			c.lookups.WithLabelValues(kind, "miss"), c.lookups.WithLabelValues(kind, "hit"),
		})
	}
	var err error
	c.entries, err = ristretto.NewCache(&ristretto.Config[uint64, *Entry[S]]{
		// Several counters per possible entry; most entries are rows of about 700 bytes.
		NumCounters: max(10_000, budget/256),
		MaxCost:     budget,
		BufferItems: 64,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the cache of derived forms: %w", err)
	}
	return c, nil
}

// Collectors returns the metrics.
func (c *Cache[S]) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		c.lookups,
		gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_derived_bytes",
			Help: "Bytes of derived forms: compressed lists, rows of Tables, metadata.",
		}, func() float64 { return float64(c.Bytes()) }),
		gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_derived_bytes_limit",
			Help: "Limit on the bytes of derived forms; the least used are evicted.",
		}, func() float64 { return float64(c.Budget()) }),
	}
}

// Close releases the entries and stops the cache's goroutines. Later values are computed but not
// stored.
func (c *Cache[S]) Close() {
	c.open.Lock()
	defer c.open.Unlock()
	if !c.open.closed {
		c.open.closed = true
		c.entries.Close()
	}
}

// Bytes returns the size of the entries.
func (c *Cache[S]) Bytes() int64 { return max(0, c.entries.MaxCost()-c.entries.RemainingCost()) }

// Budget returns the maximum of Bytes.
func (c *Cache[S]) Budget() int64 { return c.entries.MaxCost() }

// Get returns the value of a version in a slot. It does not count a miss: callers continue with
// Obtain, which does.
func (c *Cache[S]) Get(s *S, version uint64, usable func(value any) bool) (value any, ok bool) {
	e := c.peek(s)
	if e == nil || e.Version != version || !usable(e.Value) {
		return nil, false
	}
	c.count(s, true)
	return e.Value, true
}

// Obtain returns the value of a version in a slot. If it is missing, or if usable rejects it,
// Obtain calls build with the slot's current entry, or nil, as a starting point. One caller at a
// time builds a slot's value; the others wait for it, and build the next one if they need another
// version. size is in bytes.
func (c *Cache[S]) Obtain(s *S, version uint64, usable func(value any) bool, build func(old *Entry[S]) (value any, size int, err error)) (any, error) {
	fits := func(e *Entry[S]) bool {
		return e != nil && e.Version == version && (usable == nil || usable(e.Value))
	}
	old := c.peek(s)
	hit := fits(old)
	c.count(s, hit)
	if hit {
		return old.Value, nil
	}
	for {
		c.making.Lock()
		other := c.making.slots[*s]
		if other == nil {
			break
		}
		c.making.Unlock()
		<-other.done
		// The result is usable even if the cache rejected it.
		if other.entry != nil {
			old = other.entry
		}
		if fits(old) {
			return old.Value, nil
		}
	}
	m := &making[S]{done: make(chan struct{})}
	c.making.slots[*s] = m
	c.making.Unlock()
	defer func() { // even if build panics
		c.making.Lock()
		delete(c.making.slots, *s)
		c.making.Unlock()
		close(m.done)
	}()
	if e := c.peek(s); e != nil {
		old = e
	}
	if fits(old) { // built between peek and lock
		m.entry = old
		return old.Value, nil
	}
	value, size, err := build(old)
	if err != nil {
		return nil, err
	}
	m.entry = c.put(s, version, value, size)
	return value, nil
}

// Once is Obtain for values of type T that are built from nothing.
func Once[S Slot, T any](c *Cache[S], s *S, version uint64, build func() (value T, size int, err error)) (T, error) {
	value, err := c.Obtain(s, version, nil, func(*Entry[S]) (any, int, error) { return build() })
	if err != nil {
		var none T
		return none, err
	}
	return value.(T), nil
}

func (c *Cache[S]) hash(s *S) uint64 { return maphash.Comparable(c.seed, *s) }

// peek returns the entry in a slot, whatever its version, or nil if the slot is empty.
func (c *Cache[S]) peek(s *S) *Entry[S] {
	c.open.RLock()
	defer c.open.RUnlock()
	if c.open.closed {
		return nil
	}
	e, ok := c.entries.Get(c.hash(s))
	if !ok || e.slot != *s {
		return nil
	}
	return e
}

// put stores the value of a version in a slot. size is in bytes.
func (c *Cache[S]) put(s *S, version uint64, value any, size int) *Entry[S] {
	e := &Entry[S]{slot: *s, Version: version, Value: value}
	c.open.RLock()
	defer c.open.RUnlock()
	if c.open.closed {
		return e
	}
	c.entries.Set(c.hash(s), e, int64(size+(*s).Size())+int64(unsafe.Sizeof(*e)))
	if (*s).IsExpensive() {
		c.entries.Wait() // ristretto stores entries asynchronously
	}
	return e
}

func (c *Cache[S]) count(s *S, hit bool) {
	result := 0
	if hit {
		result = 1
	}
	c.results[(*s).Kind()][result].Inc()
}
