package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Limits of one change.
const (
	// maxValue is what etcd takes.
	maxValue = 3 << 19
	maxKey   = 16 << 10
)

// Limits of a group. They are far below half a memtable, from where on Pebble
// makes a batch a file of its own.
const (
	groupChanges = 512
	groupBytes   = 1 << 20 // and one change
)

// Limits of the queue. Each waiting change has a caller that waits too, or has left.
const (
	queueChanges = 16 << 10
	queueBytes   = 64 << 20
)

// A change is a Put or Delete that waits or is being written. The commit loop sets the results
// before it closes done.
type change struct {
	key     string
	value   []byte
	kind    changeKind
	expect  uint64 // revision, 0: the key must not exist
	expires int64  // milliseconds of Unix time, 0: never
	// snapshot is taken when the group of a changeSnapshot is visible.
	snapshot *Snapshot

	// state leaves changeWaits once: the commit loop takes the change, or the caller
	// abandons it.
	state atomic.Int32
	done  chan struct{}

	revision uint64
	held     uint64 // of a conflict: the key's revision, 0: it does not exist
	err      error  // errConflict, or why it failed
}

type changeKind uint8

const (
	changePut changeKind = iota
	changeDelete
	// changeCompact forgets history before the revision expect.
	changeCompact
	// changeSnapshot changes nothing.
	changeSnapshot
)

const (
	changeWaits int32 = iota
	changeTaken
	changeLeft
)

var errConflict = errors.New("conflict")

func (c *change) cost() int { return len(c.key) + len(c.value) + 64 }

// Put implements storage.Engine. value is copied.
func (e *Engine) Put(ctx context.Context, key string, value []byte, expect storage.Precondition, ttl time.Duration) (uint64, error) {
	if len(value) > maxValue {
		return 0, storage.ErrTooLarge
	}
	c := &change{kind: changePut, key: key, value: append(make([]byte, 0, len(value)), value...), expect: expect.Revision}
	if ttl > 0 {
		c.expires = e.clock.Now().Add(ttl).UnixMilli()
	}
	return e.change(ctx, c)
}

// Delete implements storage.Engine.
func (e *Engine) Delete(ctx context.Context, key string, expect storage.Precondition) (uint64, error) {
	if expect.Revision == 0 {
		return 0, errors.New("a deletion needs the revision of what it deletes")
	}
	return e.change(ctx, &change{kind: changeDelete, key: key, expect: expect.Revision})
}

func (e *Engine) change(ctx context.Context, c *change) (uint64, error) {
	switch {
	case c.key == "" && c.kind != changeCompact && c.kind != changeSnapshot:
		return 0, errors.New("a key is needed")
	case len(c.key) > maxKey:
		return 0, fmt.Errorf("%w: its key has more than %d bytes", storage.ErrTooLarge, maxKey)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	down, err := e.guard.unavailable()
	if err == nil {
		err = e.rejects(c)
	}
	if err != nil {
		return 0, err
	}
	// The index shares the key for as long as it exists; a substring of something large
	// would keep all of it in memory.
	c.key = strings.Clone(c.key)
	c.done = make(chan struct{})
	if err := e.queue.add(c); err != nil {
		return 0, err
	}
	select {
	case <-c.done:
		return e.result(ctx, c)
	case <-ctx.Done():
		err = ctx.Err()
	case <-down:
		_, err = e.guard.unavailable()
		if err == nil {
			err = fmt.Errorf("%w for a moment", storage.ErrUnavailable)
		}
	}
	// A change that the commit loop did not have yet will never be taken.
	if !c.state.CompareAndSwap(changeWaits, changeLeft) && (errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrClosed)) {
		err = storage.Uncertain(err)
	}
	return 0, err
}

func (e *Engine) result(ctx context.Context, c *change) (uint64, error) {
	if !errors.Is(c.err, errConflict) {
		return c.revision, c.err
	}
	conflict := &storage.ConflictError{Key: c.key}
	if c.held == 0 {
		return 0, conflict
	}
	kv, err := e.at(c.key, c.held)
	if errors.Is(err, storage.ErrCompacted) { // changed since, and compacted
		var r storage.RangeResult
		if r, err = e.Range(ctx, storage.RangeOptions{Prefix: c.key, Exact: true}); err == nil && len(r.KVs) == 1 {
			kv = &r.KVs[0]
		}
	}
	if err != nil {
		return 0, err
	}
	conflict.Current = kv
	return 0, conflict
}

// A queue holds the changes that wait for the commit loop.
type queue struct {
	wake chan struct{} // has room for one
	mu   struct {
		sync.Mutex
		changes []*change
		bytes   int
		closed  bool
	}
}

func (q *queue) init() { q.wake = make(chan struct{}, 1) }

func (q *queue) add(c *change) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return storage.ErrClosed
	case len(q.mu.changes) >= queueChanges || q.mu.bytes >= queueBytes:
		return fmt.Errorf("%w: %d changes wait for its disk", storage.ErrUnavailable, len(q.mu.changes))
	}
	q.mu.changes = append(q.mu.changes, c)
	q.mu.bytes += c.cost()
	signal(q.wake)
	return nil
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.changes)
}

// take moves changes to a group, as many as fit.
func (q *queue) take(group []*change) []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.mu.changes) && len(group) < groupChanges && size < groupBytes {
		c := q.mu.changes[n]
		n++
		q.mu.bytes -= c.cost()
		if c.state.CompareAndSwap(changeWaits, changeTaken) {
			group = append(group, c)
			size += c.cost()
		}
	}
	left := copy(q.mu.changes, q.mu.changes[n:])
	clear(q.mu.changes[left:])
	q.mu.changes = q.mu.changes[:left]
	if cap(q.mu.changes) > 4*groupChanges && left == 0 {
		q.mu.changes = nil
	}
	return group
}

// close rejects further changes and returns those that wait.
func (q *queue) close() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	left := q.mu.changes
	q.mu.changes = nil
	return left
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// A writer is the state of the commit loop, which alone uses it.
type writer struct {
	group   []*change
	changed []changed
	pending map[string]pending
	batch   *pebble.Batch
	scratch []byte
	large   []byte
	// compacted is up to where the group forgets history, 0 if it does not.
	compacted uint64
}

// A pending is a key that a change of the group has written.
type pending struct {
	revision uint64 // 0: deleted
	expires  int64
}

// A changed is a change that takes effect when its group is on disk.
type changed struct {
	*change
	event storage.EventType
}

// commitLoop takes all changes that wait and makes them durable in one write. Changes that
// arrive during the write form the next group, so groups grow with the load and a lone caller
// waits for its own change only.
func (e *Engine) commitLoop() {
	defer close(e.committed)
	w := &e.writer
	w.pending = map[string]pending{}
	w.batch = e.db.NewBatch()
	for {
		w.group = e.queue.take(w.group[:0])
		if len(w.group) > 0 {
			e.commit()
			clear(w.group)
			continue
		}
		select {
		case <-e.queue.wake:
		case <-e.closing:
			for _, c := range e.queue.close() {
				c.err = storage.ErrClosed
				close(c.done)
			}
			_ = w.batch.Close()
			return
		}
	}
}

// commit makes a group durable, then visible, then known to its callers.
func (e *Engine) commit() {
	start := time.Now()
	w := &e.writer
	clear(w.pending)
	clear(w.changed)
	w.changed, w.compacted = w.changed[:0], 0
	next := e.mu.revision + 1 // only this loop changes it
	noRoom := e.guard.noRoom()
	for _, c := range w.group {
		switch {
		case c.kind == changeSnapshot:
		case c.kind == changeCompact:
			e.stageCompact(c)
		case noRoom != nil && c.kind == changePut && c.expect == 0 && e.held(c.key) == 0:
			// It waited while the disk became full. The queue may hold more than the reserve.
			c.err = noRoom
		case e.stage(c, next):
			next++
		}
	}
	var err error
	if !w.batch.Empty() {
		if err = e.db.Apply(w.batch, pebble.Sync); err == nil {
			e.publish()
		}
		w.batch.Reset()
		e.metrics.commit(len(w.changed), time.Since(start))
	}
	// A conflict may be with another change of the group: its caller must not learn of
	// that change before it is durable.
	for _, c := range w.group {
		switch {
		case err != nil:
			c.err = storage.Uncertain(fmt.Errorf("%w: %w", storage.ErrUnavailable, err))
		case c.kind == changeSnapshot:
			c.snapshot.take()
		}
		close(c.done)
	}
}

// stage checks a change against the state after those before it in the group, and adds it to
// the batch. It returns false if the change conflicts.
func (e *Engine) stage(c *change, rev uint64) bool {
	w := &e.writer
	before, staged := w.pending[c.key]
	if !staged {
		before = pending{revision: e.held(c.key), expires: e.expiry.of(c.key)}
	}
	if before.revision != c.expect || c.kind == changeDelete && before.revision == 0 {
		c.held, c.err = before.revision, errConflict
		return false
	}
	c.revision = rev
	event, version := storage.Updated, versionLive
	switch {
	case c.kind == changeDelete:
		event, version = storage.Deleted, versionGone
	case before.revision == 0:
		event = storage.Created
	}
	w.write(logKey(rev), w.entry(event, before.revision, c))
	w.scratch = appendVersionKey(w.scratch[:0], c.key, rev)
	w.write(w.scratch, version)
	if event != storage.Created {
		w.write(garbageKey(rev), garbageValue(before.revision, event == storage.Deleted, c.key))
	}
	if before.expires != 0 {
		_ = w.batch.Delete(expiryKey(before.expires, before.revision), nil)
	}
	if c.expires != 0 {
		w.write(expiryKey(c.expires, rev), []byte(c.key))
	}
	after := pending{revision: rev, expires: c.expires}
	if event == storage.Deleted {
		after = pending{}
	}
	w.pending[c.key] = after
	w.changed = append(w.changed, changed{change: c, event: event})
	return true
}

// held returns the revision of a key, 0 if it does not exist.
func (e *Engine) held(key string) uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mu.index.get(key)
}

// write adds to the batch; it copies. A batch in memory does not fail.
func (w *writer) write(key, value []byte) { _ = w.batch.Set(key, value, nil) }

// entry encodes a change for the log. The result is valid until the next call.
func (w *writer) entry(kind storage.EventType, previous uint64, c *change) []byte {
	const keep = 64 << 10
	if cap(w.large) > keep {
		w.large = nil
	}
	w.large = appendEntry(w.large[:0], kind, previous, c.key, c.value)
	return w.large
}

// publish makes the group visible, all of it at once.
func (e *Engine) publish() {
	w := &e.writer
	e.expiry.apply(w.changed)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range w.changed {
		c := &w.changed[i]
		now := c.revision
		if c.event == storage.Deleted {
			now = 0
		}
		e.mu.index.set(c.key, now)
	}
	e.mu.revision += uint64(len(w.changed))
	e.mu.compacted = max(e.mu.compacted, w.compacted)
	e.mu.watchers.publish(w.changed, e.mu.revision)
	signal(e.highWater.wake)
}
