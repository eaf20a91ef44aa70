package form

import (
	"errors"
	"fmt"
	"hash/maphash"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/object"
)

func newDerived(budget int64) (*derived, error) {
	d := &derived{seed: maphash.MakeSeed(), metrics: newDerivedMetrics()}
	d.making.slots = make(map[slot]*making)
	var err error
	d.cache, err = ristretto.NewCache(&ristretto.Config[uint64, *derivedEntry]{
		// Several counters per possible entry; most entries are rows of about 700 bytes.
		NumCounters: max(10_000, budget/256),
		MaxCost:     budget,
		BufferItems: 64,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the cache of derived forms: %w", err)
	}
	return d, nil
}

// close releases the entries and stops the cache's goroutines. Later values are computed but not
// stored.
func (d *derived) close() {
	d.open.Lock()
	defer d.open.Unlock()
	if !d.open.closed {
		d.open.closed = true
		d.cache.Close()
	}
}

// bytes returns the size of the entries.
func (d *derived) bytes() int64 { return max(0, d.cache.MaxCost()-d.cache.RemainingCost()) }

func (d *derived) hash(s *slot) uint64 { return maphash.Comparable(d.seed, *s) }

// peek returns the entry in a slot, whatever its version, or nil if the slot is empty.
func (d *derived) peek(s *slot) *derivedEntry {
	d.open.RLock()
	defer d.open.RUnlock()
	if d.open.closed {
		return nil
	}
	e, ok := d.cache.Get(d.hash(s))
	if !ok || e.slot != *s {
		return nil
	}
	return e
}

// get returns the value of version id in a slot. It does not count a miss: callers continue with
// obtain, which does.
func (d *derived) get(s *slot, id uint64) (any, bool) {
	e := d.peek(s)
	if e == nil || e.id != id {
		return nil, false
	}
	d.metrics.count(s.kind, true)
	return e.value, true
}

// put stores the value of version id in a slot. size is in bytes.
func (d *derived) put(s *slot, id uint64, value any, size int) *derivedEntry {
	e := &derivedEntry{slot: *s, id: id, value: value}
	d.open.RLock()
	defer d.open.RUnlock()
	if d.open.closed {
		return e
	}
	d.cache.Set(d.hash(s), e, int64(size+len(s.key)+len(s.from))+int64(unsafe.Sizeof(*e)))
	if s.kind.ofList() {
		// Ristretto stores entries asynchronously. The next caller must find a value that was
		// expensive to compute.
		d.cache.Wait()
	}
	return e
}

var errAbandoned = errors.New("building a derived form was abandoned")

// obtain returns the value of version id in a slot. If it is missing, or if usable rejects it,
// obtain calls build with the slot's current entry, or nil, as a starting point. One caller at a
// time builds a slot's value; the others wait for it, and build the next one if they need another
// version.
func (d *derived) obtain(s *slot, id uint64, usable func(value any) bool, build func(old *derivedEntry) (value any, size int, err error)) (any, error) {
	fits := func(e *derivedEntry) bool { return e != nil && e.id == id && (usable == nil || usable(e.value)) }
	old := d.peek(s)
	hit := fits(old)
	d.metrics.count(s.kind, hit)
	if hit {
		return old.value, nil
	}
	for {
		d.making.Lock()
		other := d.making.slots[*s]
		if other == nil {
			break
		}
		d.making.Unlock()
		<-other.done
		// The result is usable even if the cache rejected it.
		if other.err == nil {
			if old = other.entry; fits(old) {
				return old.value, nil
			}
		}
	}
	m := &making{done: make(chan struct{}), err: errAbandoned}
	d.making.slots[*s] = m
	d.making.Unlock()
	defer func() { // even if build panics
		d.making.Lock()
		delete(d.making.slots, *s)
		d.making.Unlock()
		close(m.done)
	}()
	if e := d.peek(s); e != nil {
		old = e
	}
	if fits(old) { // built between peek and lock
		m.entry, m.err = old, nil
		return old.value, nil
	}
	value, size, err := build(old)
	if err != nil {
		m.err = err
		return nil, err
	}
	m.entry, m.err = d.put(s, id, value, size), nil
	return value, nil
}

func newDerivedMetrics() derivedMetrics {
	m := derivedMetrics{lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_derived_lookups_total",
		Help: "Lookups of derived forms, by form and result (hit, miss).",
	}, []string{"form", "result"})}
	for k := range derivedKinds {
		m.results[k] = [2]prometheus.Counter{
			m.lookups.WithLabelValues(k.String(), "miss"),
			m.lookups.WithLabelValues(k.String(), "hit"),
		}
	}
	return m
}

func (m *derivedMetrics) count(k derivedKind, hit bool) {
	if hit {
		m.results[k][1].Inc()
	} else {
		m.results[k][0].Inc()
	}
}

// collect calls one for each object, or returns the results stored in slot s of p.
func collect[T any](r *Renderer, p place, s slot, objs Objects, one func(*Resource, *object.Object) (T, error)) ([]T, error) {
	all := func() ([]T, error) {
		var failed error
		values := make([]T, objs.Len())
		objs.Each(func(i int, o *object.Object) bool {
			values[i], failed = one(s.resource, o)
			return failed == nil
		})
		return values, failed
	}
	// The collected values stay reachable beyond the budget. Pages and selections are not stored,
	// so at most two generations per namespace are.
	if s.single || s.limit > 0 || s.key != "" {
		return all()
	}
	value, err := r.derived.obtain(&s, p.id, nil, func(*derivedEntry) (any, int, error) {
		values, err := all()
		var element T
		return values, len(values) * int(unsafe.Sizeof(element)), err
	})
	if err != nil {
		return nil, err
	}
	return value.([]T), nil
}
