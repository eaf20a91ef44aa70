package query

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Columns caches the frames, columns and orders that queries use on one collection. They are made
// on demand, never while events are applied. Those of a newer state are made from those of an older
// state and from what has changed since, which comparing pointers finds.
//
// Their cost is bounded: it is their own size and that of the objects that were replaced since the
// oldest of them was made, which it keeps from being freed. At half of the bound they are renewed
// in the background for the newest state, which costs what has changed. If that is not enough, the
// least recently used ones are dropped.
type Columns struct {
	maxBytes int64
	store    *store.Store // mu may be taken while its publish is held, and its mu while mu is held
	spawn    func(func()) // runs renew; the collection waits for it
	// building orders the callers that make a column from all objects.
	building fairQueue
	// trimAt is the churn above which columns must be dropped or renewed, see Grown; noPin without
	// any.
	trimAt atomic.Int64

	mu struct {
		sync.Mutex
		made, making map[columnKey]*madeColumn
		churn        int64 // the collection's, when it was last read
		bytes        int64 // of made
		closed       bool
		// renewing is true while renew runs.
		renewing bool
	}
}

// columnKey identifies a frame, or a column or an order of one.
type columnKey struct {
	name    string
	content uint64
}

// madeColumn is a column that is cached or being made. A frame is cached as a column that has only
// frame and bytes, an order as one that has order as well.
type madeColumn struct {
	*column               // nil until it is made, or if that failed
	done    chan struct{} // closed then
	reader  valueReader   // of a frame or an order only the name
	used    time.Time
}

func (m *madeColumn) isFrame() bool { return m.reader.name == frameName }

// noPin is the churn of the oldest pinned state if none is pinned.
const noPin = math.MaxInt64

const (
	// maxColumnSets is how many states have columns at a time: the newest one, and that of a list that
	// is read in pages.
	maxColumnSets = 2
	// maxColumns is the maximum number of columns, whatever they cost.
	maxColumns = 128
	// idleTime is how long unused frames, columns and orders are kept.
	idleTime = 10 * time.Minute
	// frameName is the name of frames. Neither a column nor an order has it.
	frameName = "frame"
)

func (k *Columns) Init(s *store.Store, maxBytes int64, spawn func(func())) {
	k.maxBytes, k.store, k.spawn = maxBytes, s, spawn
	k.building.init()
	k.trimAt.Store(noPin)
	k.mu.made = make(map[columnKey]*madeColumn)
	k.mu.making = make(map[columnKey]*madeColumn)
}

// frame returns the frame of v.
func (k *Columns) frame(v *store.Snapshot) *frame {
	c, _ := k.obtain(context.Background(), v.Content(), valueReader{name: frameName}, time.Now(), nil, func(base *column) (*column, error) {
		f := newFrame(k.store, v, base)
		return &column{frame: f, bytes: int64(len(f.objs)) * 8}, nil
	})
	return c.frame
}

// newFrame makes the frame of v. If earlier is not nil and only a few objects have changed since,
// it takes the others from there.
func newFrame(s *store.Store, v *store.Snapshot, earlier *column) *frame {
	f := &frame{content: v.Content(), churn: v.Churn(), mark: v.Mark()}
	if earlier != nil && f.mark.IsKnown && earlier.frame.content < f.content {
		if keys, ok := s.ChangedSince(earlier.frame.mark, v.Len()/fewChanged); ok {
			f.objs = earlier.frame.with(v, keys)
			return f
		}
	}
	f.objs = make([]*object.Object, 0, v.Len())
	v.Ascend("", "", func(o *object.Object) bool {
		f.objs = append(f.objs, o)
		return true
	})
	return f
}

// fewChanged is the inverse of the largest share of changed objects for which looking up each of
// them is faster than visiting all objects.
const fewChanged = 32

// obtain returns the column of a reader for the state content. If it is not cached, build makes it,
// once for all callers that wait for it, from the column of the same reader for another state, or
// from nil. In the latter case it waits for a turn first, if turn is not nil. used is when the
// column is used.
func (k *Columns) obtain(ctx context.Context, content uint64, s valueReader, used time.Time, acquire func() (leave func(), err error), build func(base *column) (*column, error)) (*column, error) {
	key := columnKey{s.name, content}
	var base *column
	for {
		k.mu.Lock()
		if made := k.mu.made[key]; made != nil {
			if made.used.Before(used) {
				made.used = used
			}
			k.mu.Unlock()
			return made.column, nil
		}
		if newest := k.firstLocked(s.name, isNewer); newest != nil {
			base = newest.column
		}
		other := k.mu.making[key]
		if other == nil && (base != nil || acquire == nil) {
			break
		}
		k.mu.Unlock()
		if other == nil {
			leave, err := acquire()
			if err != nil {
				return nil, err
			}
			defer leave()
			acquire = nil
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
	m := &madeColumn{done: make(chan struct{}), reader: s, used: used}
	k.mu.making[key] = m
	k.mu.Unlock()
	defer func() { // also if build panics
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.mu.making, key)
		if m.column != nil {
			k.putLocked(key, m)
		}
		close(m.done)
	}()
	var err error
	m.column, err = build(base)
	return m.column, err
}

// firstLocked returns the first column in the order before, among those with the name, or among all
// if name is "". It returns nil if there is none. The caller holds mu.
func (k *Columns) firstLocked(name string, before func(a, b *madeColumn) bool) (first *madeColumn) {
	for key, made := range k.mu.made {
		if (name == "" || name == key.name) && (first == nil || before(made, first)) {
			first = made
		}
	}
	return first
}

// isNewer orders by state, the newest first.
func isNewer(a, b *madeColumn) bool { return a.frame.content > b.frame.content }

// pinsMore orders by the memory that each prevents from being freed.
func pinsMore(a, b *madeColumn) bool { return a.frame.churn < b.frame.churn }

// isLessUsed orders by use, the least recent one first. Frames come last, because all columns need
// them.
func isLessUsed(a, b *madeColumn) bool {
	if a.isFrame() != b.isFrame() {
		return b.isFrame()
	}
	return a.used.Before(b.used)
}

// putLocked caches a column. At most maxColumnSets columns of the same name remain.
func (k *Columns) putLocked(key columnKey, made *madeColumn) {
	if k.mu.closed {
		return
	}
	n := 0
	for other := range k.mu.made {
		if other.name == key.name {
			n++
		}
	}
	if n >= maxColumnSets {
		k.dropLocked(k.firstLocked(key.name, isLessUsed))
	}
	k.mu.made[key] = made
	k.mu.bytes += made.bytes
	k.mu.churn = max(k.mu.churn, made.frame.churn)
	k.trimLocked()
}

func (k *Columns) dropLocked(made *madeColumn) {
	k.mu.bytes -= made.bytes
	delete(k.mu.made, columnKey{made.reader.name, made.frame.content})
}

func (k *Columns) dropAllLocked() {
	clear(k.mu.made)
	k.mu.bytes = 0
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
	if len(k.mu.made) > 0 && !k.mu.renewing {
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
			k.dropAllLocked()
		}
		k.trimLocked()
		if k.store.Churn() > k.trimAt.Load() && len(k.mu.made) > 0 { // changed meanwhile, see Grown
			k.mu.renewing = true
			k.trimLocked()
			k.spawn(k.renew)
		}
	}()
	f := k.frame(k.store.Current())
	k.mu.Lock()
	var old []madeColumn
	for key, made := range k.mu.made {
		if made.reader.token != nil && made == k.firstLocked(key.name, isNewer) {
			old = append(old, *made)
		}
	}
	k.mu.Unlock()
	for _, made := range old {
		// If there is an error, the next query gets it.
		_, _ = k.obtain(context.Background(), f.content, made.reader, made.used, nil, func(*column) (*column, error) {
			return f.column(context.Background(), made.reader, made.column)
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, made := range k.mu.made {
		if made.frame.churn < f.churn {
			k.dropLocked(made)
		}
	}
	renewed = true
}

// trimLocked drops columns until the rest is within the bounds and a quarter of the bytes is left
// for what they pin. It drops those that pin the most if pinned objects are the larger part, else
// the least recently used ones. It takes the store's mu.
func (k *Columns) trimLocked() {
	for len(k.mu.made) > 0 {
		oldest := k.firstLocked("", pinsMore)
		churn := oldest.frame.churn
		pinned, room := max(0, k.mu.churn-churn), k.maxBytes-k.mu.bytes
		switch {
		case pinned <= room && k.mu.bytes <= k.maxBytes/4*3 && len(k.mu.made) <= maxColumns+maxColumnSets:
			trimAt := churn + room
			if !k.mu.renewing {
				trimAt = churn + room/2
			}
			k.trimAt.Store(trimAt)
			// The store did not call Grown for changes up to the previous trimAt. It does for all
			// that follow.
			now := k.store.Churn()
			if now-churn <= room {
				return
			}
			k.mu.churn = now
		case pinned > k.mu.bytes:
			k.dropLocked(oldest)
		default:
			k.dropLocked(k.firstLocked("", isLessUsed))
		}
	}
	k.trimAt.Store(noPin)
}

// DropUnused drops everything that was not used for idleTime.
func (k *Columns) DropUnused(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, made := range k.mu.made {
		if now.Sub(made.used) >= idleTime {
			k.dropLocked(made)
		}
	}
	if unused := k.firstLocked("", isLessUsed); unused != nil && unused.isFrame() {
		k.dropAllLocked() // frames are cheap to make
	}
	k.trimLocked()
}

// Close drops everything, for good.
func (k *Columns) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.closed = true
	k.dropAllLocked()
	k.trimLocked()
}

// Size returns the number of columns and orders, their size, and the size of the memory that they
// prevent from being freed.
func (k *Columns) Size(churn int64) (n int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, made := range k.mu.made {
		if !made.isFrame() {
			n++
		}
	}
	if oldest := k.firstLocked("", pinsMore); oldest != nil {
		bytes = max(0, churn-oldest.frame.churn)
	}
	return n, bytes + k.mu.bytes
}

// fairQueue admits one caller at a time to make a column from all objects. Each user has at most
// one caller in the queue, and the user's other callers wait behind it. A user who requests many
// columns therefore delays only their own requests. It is safe for concurrent use.
type fairQueue struct {
	slot chan struct{} // first come, first served
	mu   struct {
		sync.Mutex
		users map[string]*userQueue // with a caller that waits or makes a column
	}
}

// userQueue is the queue of one user. callers is guarded by fairQueue.mu.
type userQueue struct {
	slot    chan struct{}
	callers int
}

func (t *fairQueue) init() {
	t.slot = make(chan struct{}, 1)
	t.mu.users = make(map[string]*userQueue)
}

// take waits for the user's turn. The caller calls leave when it is done. The error is that of ctx.
func (t *fairQueue) take(ctx context.Context, user string) (leave func(), err error) {
	t.mu.Lock()
	mine := t.mu.users[user]
	if mine == nil {
		mine = &userQueue{slot: make(chan struct{}, 1)}
		t.mu.users[user] = mine
	}
	mine.callers++
	t.mu.Unlock()
	var taken []chan struct{}
	leave = func() {
		for _, slot := range slices.Backward(taken) {
			<-slot
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.callers--; mine.callers == 0 {
			delete(t.mu.users, user)
		}
	}
	for _, slot := range []chan struct{}{mine.slot, t.slot} {
		select {
		case slot <- struct{}{}:
			taken = append(taken, slot)
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
