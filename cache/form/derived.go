package form

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// derived keeps what is made from objects and can be made again, within a budget
// of bytes, and sees to it that nothing is made twice at the same time.
//
// What is kept lives in slots: a slot names a form of an object, or of a list,
// whatever its version; a newer version replaces the older in place. So nothing
// outdated takes up room for long, and lists of a changing collection can take
// over from their predecessor what has not changed.
type derived struct {
	// open guards cache against use while it is closed, which it does not do
	// itself; closed says that it is.
	open struct {
		sync.RWMutex
		closed bool
	}
	cache *ristretto.Cache[uint64, *derivedEntry]
	seed  maphash.Seed

	making struct {
		sync.Mutex
		slots map[slot]*making
	}
	metrics derivedMetrics
}

// slot is a place for a derived form.
type slot struct {
	kind   derivedKind
	rep    api.Representation
	coding api.Compression
	single bool // a form of one object, not of a list
	// limit and from are the size and the first key of a page.
	limit     int
	from      string
	resource  *Resource
	namespace string
	// key is that of the object, or the variant of a selection.
	key string
}

// place is where what is derived from a response's objects is kept: slots for
// the list or the object, and the version of its contents.
type place struct {
	slotOf slot // with kind, rep and coding left open
	id     uint64
}

func (p place) slot(k derivedKind) slot {
	s := p.slotOf
	s.kind = k
	return s
}

// derivedKind is what a slot holds.
type derivedKind uint8

const (
	derivedRow           derivedKind = iota // *table.Row of an object
	derivedMetadata                         // []byte, metadata of a custom resource's object
	derivedRows                             // []*table.Row of a list
	derivedMetas                            // [][]byte of a list
	derivedWindow                           // tableWindow of a list or an object
	derivedBody                             // *compressed, items of a list or an object
	derivedInitial                          // *compressed, initial events of a watch
	derivedTranscoded                       // transcodedObject of an object
	derivedTranscodedAll                    // []transcodedObject of a list
	derivedRedacted                         // *object.Object, redacted
	derivedRedactedAll                      // []*object.Object of a list
	derivedKinds
)

func (k derivedKind) String() string {
	return [...]string{"row", "metadata", "rows", "metadata_list", "table_window", "body", "initial_events", "transcoded", "transcoded_list", "redacted", "redacted_list"}[k]
}

// ofList reports whether a form is that of a list, made from those of its
// objects.
func (k derivedKind) ofList() bool {
	return k == derivedRows || k == derivedMetas || k == derivedBody || k == derivedInitial || k == derivedTranscodedAll || k == derivedRedactedAll
}

// derivedEntry is what is in a slot. It is immutable.
type derivedEntry struct {
	slot slot
	// id says of which version of the object (its ID) or of the collection (its
	// view's Content) value was made.
	id    uint64
	value any
}

// making is a value being made; its fields are set when done is closed.
type making struct {
	done  chan struct{}
	entry *derivedEntry
	err   error
}

func newDerived(budget int64) (*derived, error) {
	d := &derived{seed: maphash.MakeSeed(), metrics: newDerivedMetrics()}
	d.making.slots = make(map[slot]*making)
	var err error
	d.cache, err = ristretto.NewCache(&ristretto.Config[uint64, *derivedEntry]{
		// A few counters for each entry that could be there: most are rows of
		// some 700 bytes.
		NumCounters: max(10_000, budget/256),
		MaxCost:     budget,
		BufferItems: 64,
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of derived forms: %w", err)
	}
	return d, nil
}

// close frees what is kept and ends the cache's goroutines; nothing is kept from
// then on.
func (d *derived) close() {
	d.open.Lock()
	defer d.open.Unlock()
	if !d.open.closed {
		d.open.closed = true
		d.cache.Close()
	}
}

// bytes is the room taken.
func (d *derived) bytes() int64 { return max(0, d.cache.MaxCost()-d.cache.RemainingCost()) }

func (d *derived) hash(s *slot) uint64 { return maphash.Comparable(d.seed, *s) }

// peek returns what is in a slot, of whatever version; nil when it is empty.
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

// get returns the value of version id in a slot. Where there is none obtain
// usually follows, which counts the miss.
func (d *derived) get(s *slot, id uint64) (any, bool) {
	e := d.peek(s)
	if e == nil || e.id != id {
		return nil, false
	}
	d.metrics.count(s.kind, true)
	return e.value, true
}

// put fills a slot; size is that of the value in bytes.
func (d *derived) put(s *slot, id uint64, value any, size int) *derivedEntry {
	e := &derivedEntry{slot: *s, id: id, value: value}
	d.open.RLock()
	defer d.open.RUnlock()
	if d.open.closed {
		return e
	}
	d.cache.Set(d.hash(s), e, int64(size+len(s.key)+len(s.from))+int64(unsafe.Sizeof(*e)))
	if s.kind.ofList() {
		// The cache takes entries in when it finds the time. What took long to
		// make must be found by whoever comes next.
		d.cache.Wait()
	}
	return e
}

var errAbandoned = errors.New("making a derived form was abandoned")

// obtain returns the value of version id in a slot, making it when it is not
// there or, where usable is given, not usable any more. build gets what the slot
// has, nil if nothing, to build upon. One caller at a time makes a slot's value;
// others wait, and make the next one if they need another version.
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
		// Its result counts even if the cache did not take it.
		if other.err == nil {
			if old = other.entry; fits(old) {
				return old.value, nil
			}
		}
	}
	m := &making{done: make(chan struct{}), err: errAbandoned}
	d.making.slots[*s] = m
	d.making.Unlock()
	defer func() { // also when build panics
		d.making.Lock()
		delete(d.making.slots, *s)
		d.making.Unlock()
		close(m.done)
	}()
	if e := d.peek(s); e != nil {
		old = e
	}
	if fits(old) { // made between the look and the lock
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

// collect calls one for each object, or takes the results from the slot s of p.
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
	// What is collected keeps its parts alive beyond the budget. As that of pages
	// and selectors is not kept, it is two generations of each namespace at most.
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
