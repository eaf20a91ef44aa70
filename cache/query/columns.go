package query

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/cache/store"
)

// Columns caches the columns and orders that queries use on one collection. They are made on
// demand, never while events are applied. Those of a newer state are made from those of an older
// state and from what has changed since, which comparing pointers finds.
//
// Their cost is bounded: it is their own size and that of the objects that were replaced since the
// oldest of them was made, which it keeps from being freed. At half of the bound they are renewed
// in the background for the newest state, which costs what has changed. If that is not enough, the
// least recently used ones are dropped.
type Columns struct {
	maxBytes int64
	maxAge   time.Duration
	store    *store.Store // mu may be taken while its publish is held, and its mu while mu is held
	spawn    func(func()) // runs renew; the collection waits for it
	// framing is held while a frame is made.
	framing sync.Mutex
	// building orders the callers that make a column from all objects.
	building fairQueue
	// trimAt is the churn above which columns must be dropped or renewed, see Grown; noPin without
	// any.
	trimAt atomic.Int64

	mu struct {
		sync.Mutex
		frames []*frame // most recently used first, at most framesKept
		made   map[columnKey]*madeColumn
		making map[columnKey]*makingColumn
		churn  int64 // the collection's, when it was last read
		bytes  int64 // of made
		closed bool
		// renewing is true while renew runs.
		renewing bool
	}
}

// columnKey identifies a column or an order of one state.
type columnKey struct {
	name    string
	content uint64
}

type makingColumn struct {
	done   chan struct{}
	column *column // nil if it failed
}

// noPin is the churn of the oldest pinned state if none is pinned.
const noPin = math.MaxInt64

const (
	// framesKept is how many states have columns at a time: the newest one, and that of a list that
	// is read in pages.
	framesKept = 2
	// maxColumns is the maximum number of columns, whatever they cost.
	maxColumns = 128
)

func (k *Columns) Init(s *store.Store, maxBytes int64, maxAge time.Duration, spawn func(func())) {
	k.maxBytes, k.maxAge, k.store, k.spawn = maxBytes, maxAge, s, spawn
	k.building.init()
	k.trimAt.Store(noPin)
	k.mu.made = make(map[columnKey]*madeColumn)
	k.mu.making = make(map[columnKey]*makingColumn)
}

// frame returns the frame of v.
func (k *Columns) frame(v *store.Snapshot) *frame {
	if f, _ := k.cachedFrame(v); f != nil {
		return f
	}
	k.framing.Lock()
	defer k.framing.Unlock()
	f, earlier := k.cachedFrame(v)
	if f != nil {
		return f
	}
	f = newFrame(k.store, v, earlier)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		return f
	}
	k.mu.frames = slices.Insert(k.mu.frames[:min(len(k.mu.frames), framesKept-1)], 0, f)
	k.mu.churn = max(k.mu.churn, f.churn)
	k.trimLocked()
	return f
}

// cachedFrame returns the cached frame of v, or nil and the newest cached frame.
func (k *Columns) cachedFrame(v *store.Snapshot) (f, newest *frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, f := range k.mu.frames {
		if f.content == v.Content() {
			k.mu.frames = slices.Insert(slices.Delete(k.mu.frames, i, i+1), 0, f)
			return f, nil
		}
		if newest == nil || f.mark.IsKnown() && f.content > newest.content {
			newest = f
		}
	}
	return nil, newest
}

// obtain returns the column of a reader for f. If it is not cached, build makes it, once for all
// callers that wait for it, from the column of the same reader for another state, or from nil. In
// the latter case it waits for a turn first, if turn is not nil.
func (k *Columns) obtain(ctx context.Context, f *frame, s valueReader, turn func() (leave func(), err error), build func(*madeColumn) (*column, error)) (*column, error) {
	key := columnKey{s.name, f.content}
	var base *madeColumn
	for {
		k.mu.Lock()
		if made := k.mu.made[key]; made != nil {
			made.used = time.Now()
			k.mu.Unlock()
			return made.column, nil
		}
		other := k.mu.making[key]
		if base = k.nearestLocked(key); other == nil && (base != nil || turn == nil) {
			break
		}
		k.mu.Unlock()
		if other == nil {
			leave, err := turn()
			if err != nil {
				return nil, err
			}
			defer leave()
			turn = nil
			continue
		}
		select {
		case <-other.done:
			if other.column != nil {
				return other.column, nil // even if it was not cached
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m := &makingColumn{done: make(chan struct{})}
	k.mu.making[key] = m
	k.mu.Unlock()
	defer func() { // also if build panics
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.mu.making, key)
		if m.column != nil {
			k.putLocked(key, &madeColumn{column: m.column, reader: s, frame: f, used: time.Now()})
		}
		close(m.done)
	}()
	var err error
	m.column, err = build(base)
	return m.column, err
}

// nearestLocked returns the column with key's name for the newest state.
func (k *Columns) nearestLocked(key columnKey) (nearest *madeColumn) {
	for other, made := range k.mu.made {
		if other.name == key.name && (nearest == nil || other.content > nearest.frame.content) {
			nearest = made
		}
	}
	return nearest
}

// putLocked caches a column. At most framesKept columns of the same name remain.
func (k *Columns) putLocked(key columnKey, made *madeColumn) {
	if k.mu.closed {
		return
	}
	var oldest columnKey
	n := 0
	for other, m := range k.mu.made {
		if other.name != key.name {
			continue
		}
		if n++; n == 1 || m.used.Before(k.mu.made[oldest].used) {
			oldest = other
		}
	}
	if n >= framesKept {
		k.dropLocked(oldest)
	}
	k.mu.made[key] = made
	k.mu.bytes += made.bytes
	k.trimLocked()
}

func (k *Columns) dropLocked(key columnKey) {
	k.mu.bytes -= k.mu.made[key].bytes
	delete(k.mu.made, key)
}

// Grown records the collection's churn after a change.
func (k *Columns) Grown(churn int64) {
	if churn <= k.trimAt.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.churn = max(k.mu.churn, churn)
	k.trimLocked()
	if _, oldest := k.oldestLocked(); oldest != noPin && !k.mu.renewing && !k.mu.closed {
		k.mu.renewing = true
		k.trimLocked()
		k.spawn(k.renew)
	}
}

// renew makes the columns for the newest state and drops all others, including the orders, which
// are cheap to make.
func (k *Columns) renew() {
	renewed := false
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.mu.renewing = false; !renewed { // a panic, which would repeat
			clear(k.mu.made)
			k.mu.frames, k.mu.bytes = nil, 0
		}
		k.trimLocked()
	}()
	f := k.frame(k.store.Current())
	k.mu.Lock()
	var old []*madeColumn
	for key, made := range k.mu.made {
		if made.reader.token != nil && made == k.nearestLocked(key) {
			old = append(old, made)
		}
	}
	k.mu.Unlock()
	for _, made := range old {
		col := made.column
		if made.frame != f {
			var err error
			if col, err = carry(context.Background(), col, changeOf(made.frame.objs, f.objs), f.objs, made.reader); err != nil {
				continue // the next query gets the error
			}
		}
		k.mu.Lock()
		key := columnKey{made.reader.name, f.content}
		if k.mu.made[key] == nil {
			k.putLocked(key, &madeColumn{column: col, reader: made.reader, frame: f, used: made.used})
		}
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, made := range k.mu.made {
		if made.frame.churn < f.churn {
			k.dropLocked(key)
		}
	}
	k.mu.frames = slices.DeleteFunc(k.mu.frames, func(other *frame) bool { return other.churn < f.churn })
	renewed = true
}

// trimLocked drops columns until the rest is within the bounds and a quarter of the bytes is left
// for what they pin. It drops those that pin the most if pinned objects are the larger part, else
// the least recently used ones. It takes the store's mu.
func (k *Columns) trimLocked() {
	for {
		oldest, churn := k.oldestLocked()
		if churn == noPin {
			k.trimAt.Store(noPin)
			return
		}
		pinned := max(0, k.mu.churn-churn)
		own := k.mu.bytes + k.frameBytesLocked()
		room := k.maxBytes - own
		switch {
		case pinned <= room && own <= k.maxBytes/4*3 && len(k.mu.made) <= maxColumns:
			if !k.mu.renewing {
				room /= 2
			}
			k.trimAt.Store(churn + room)
			// The store did not call Grown for changes up to the previous trimAt. It does for all
			// that follow.
			now := k.store.Churn()
			if now-churn <= k.maxBytes-own {
				return
			}
			k.mu.churn = now
		case pinned > k.mu.bytes && oldest.frame != nil:
			k.mu.frames = slices.DeleteFunc(k.mu.frames, func(f *frame) bool { return f == oldest.frame })
		case pinned > k.mu.bytes:
			k.dropLocked(oldest.key)
		case len(k.mu.made) > 0:
			k.dropLocked(k.unusedLocked())
		default:
			k.mu.frames = nil // even one is too much
		}
	}
}

func (k *Columns) frameBytesLocked() (n int64) {
	for _, f := range k.mu.frames {
		n += int64(len(f.objs)) * 8
	}
	return n
}

// pin is what keeps the objects of a state from being freed: a frame, or else the column of key.
type pin struct {
	frame *frame
	key   columnKey
}

// oldestLocked returns what pins the oldest state, and the churn of that state.
func (k *Columns) oldestLocked() (oldest pin, churn int64) {
	churn = noPin
	for _, f := range k.mu.frames {
		if f.churn < churn {
			oldest, churn = pin{frame: f}, f.churn
		}
	}
	for key, made := range k.mu.made {
		if made.frame.churn < churn {
			oldest, churn = pin{key: key}, made.frame.churn
		}
	}
	return oldest, churn
}

// unusedLocked returns the least recently used column.
func (k *Columns) unusedLocked() (unused columnKey) {
	var used time.Time
	for key, made := range k.mu.made {
		if used.IsZero() || made.used.Before(used) {
			unused, used = key, made.used
		}
	}
	return unused
}

// DropUnused drops what nobody has used for maxAge.
func (k *Columns) DropUnused(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, made := range k.mu.made {
		if now.Sub(made.used) >= k.maxAge {
			k.dropLocked(key)
		}
	}
	if len(k.mu.made) == 0 {
		k.mu.frames = nil // cheap to make
	}
	k.trimLocked()
}

// Close drops everything, for good.
func (k *Columns) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.closed = true
	k.mu.frames, k.mu.bytes = nil, 0
	clear(k.mu.made)
	k.trimLocked()
}

// Size returns the number of columns and orders, their size and what they keep from being freed.
func (k *Columns) Size(churn int64) (n int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	bytes = k.mu.bytes + k.frameBytesLocked()
	if _, oldest := k.oldestLocked(); oldest != noPin {
		bytes += max(0, churn-oldest)
	}
	return len(k.mu.made), bytes
}

// madeColumn is a cached column. An order has only column.order.
type madeColumn struct {
	*column
	reader valueReader // of an order only the name
	frame  *frame
	used   time.Time
}
