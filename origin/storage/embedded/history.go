package embedded

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// marksPerAge is the precision of a revision's age: the number of marks per HistoryAge.
	marksPerAge = 20
	// collectStep is the number of changes whose garbage is removed in one write.
	collectStep = 256
)

// history records how old revisions are. Only the history loop uses it, but for wake.
type history struct {
	marks []mark // rising in both; of revisions that are not compacted, so that their number is bounded by marksPerAge
	wake  chan struct{}
	// collected is the revision below which garbage is removed.
	collected uint64
}

// A mark records that a revision was the current one at a time.
type mark struct {
	revision uint64
	at       time.Time
}

func (h *history) init() { h.wake = make(chan struct{}, 1) }

// add records the current revision and reports whether it has changed.
func (h *history) add(m mark) bool {
	if n := len(h.marks); n > 0 && h.marks[n-1].revision >= m.revision {
		return false
	}
	h.marks = append(h.marks, m)
	return true
}

// outlived returns the newest revision that was the current one age ago, 0 if unknown.
func (h *history) outlived(now time.Time, age time.Duration) uint64 {
	rev := uint64(0)
	for _, m := range h.marks {
		if now.Sub(m.at) < age {
			break
		}
		rev = m.revision
	}
	return rev
}

// forget drops and returns the marks below a revision.
func (h *history) forget(rev uint64) []mark {
	n := 0
	for n < len(h.marks) && h.marks[n].revision < rev {
		n++
	}
	dropped := h.marks[:n]
	h.marks = h.marks[n:]
	return dropped
}

// Compact implements storage.Engine. The history loop removes the superfluous versions later,
// in small steps. A revision that is not reached yet is a *storage.FutureError.
func (e *Engine) Compact(ctx context.Context, revision uint64) error {
	e.mu.RLock()
	now, compacted := e.mu.revision, e.mu.compacted
	e.mu.RUnlock()
	switch {
	case revision > now:
		return &storage.FutureError{Current: now}
	case revision <= compacted:
		return e.closed(ctx)
	}
	if _, err := e.change(ctx, &change{kind: changeCompact, expect: revision}); err != nil {
		return err
	}
	e.metrics.compactions.Inc()
	signal(e.history.wake)
	return nil
}

// stageCompact adds the new compacted revision to the batch.
func (e *Engine) stageCompact(c *change) {
	w := &e.writer
	if c.expect > max(e.mu.compacted, w.compacted) {
		w.compacted = c.expect
		w.write(metaCompacted, binary.BigEndian.AppendUint64(nil, c.expect))
	}
}

func (e *Engine) loadMarks() error {
	now := e.clock.Now()
	e.history.init()
	return e.scan([]byte{spaceMarks}, []byte{spaceMarks + 1}, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			rev, err := number(iter.Key())
			if err != nil {
				return err
			}
			v, err := iter.ValueAndErr()
			if err != nil {
				return err
			}
			if len(v) != 8 {
				return corrupt("a mark", iter.Key())
			}
			at := time.UnixMilli(int64(min(binary.BigEndian.Uint64(v), math.MaxInt64)))
			if at.After(now) { // the clock was set back: it is at least not older
				at = now
			}
			if rev > e.mu.revision { // marks are of changes that are on disk
				return corrupt("a mark without its change", iter.Key())
			}
			e.history.add(mark{revision: rev, at: at})
		}
		return nil
	})
}

// historyLoop records marks, compacts revisions that are old enough, and removes their garbage.
func (e *Engine) historyLoop() {
	every := e.age / marksPerAge
	if e.age < 0 {
		every = time.Duration(math.MaxInt64) // only Compact
	}
	timer := e.clock.NewTimer(every)
	defer timer.Stop()
	for {
		for e.collect() {
			if e.closed(context.Background()) != nil {
				return
			}
		}
		select {
		case <-timer.C():
			timer.Reset(every)
			e.grow()
		case <-e.history.wake:
		case <-e.closing:
			return
		}
	}
}

// grow marks the current revision and compacts those that outlived HistoryAge.
func (e *Engine) grow() {
	e.mu.RLock()
	rev, compacted := e.mu.revision, e.mu.compacted
	e.mu.RUnlock()
	now := e.clock.Now()
	if e.history.add(mark{revision: rev, at: now}) {
		// Not synced: a lost mark only makes history longer.
		e.background("mark", e.db.Set(markKey(rev), binary.BigEndian.AppendUint64(nil, uint64(max(now.UnixMilli(), 0))), pebble.NoSync))
	}
	old := e.history.outlived(now, e.age)
	if old <= compacted {
		return
	}
	if err := e.Compact(context.Background(), old); err != nil {
		e.background("compact", err)
		return
	}
	for _, m := range e.history.forget(old) {
		e.background("mark", e.db.Delete(markKey(m.revision), pebble.NoSync))
	}
}

// background logs a failed housekeeping step, which will be tried again.
func (e *Engine) background(what string, err error) {
	if err != nil && e.closed(context.Background()) == nil {
		e.log.Warn("Store housekeeping failed", "dir", e.dir, "what", what, "error", err)
	}
}

// collect removes the garbage of one step and returns whether there is more.
func (e *Engine) collect() bool {
	e.mu.RLock()
	compacted := e.mu.compacted
	e.mu.RUnlock()
	if e.history.collected >= compacted {
		return false
	}
	batch := e.db.NewBatch()
	n, next := 0, compacted
	err := e.scan(garbageKey(e.history.collected), garbageKey(compacted), func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			rev, err := number(iter.Key())
			if err != nil {
				return err
			}
			if n == collectStep {
				next = rev
				return nil
			}
			if err := remove(batch, iter, rev); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	if err == nil && n > 0 {
		// Not synced: garbage that comes back after a crash is removed again.
		err = e.db.Apply(batch, pebble.NoSync)
	}
	e.background("collect", err)
	_ = batch.Close()
	if err != nil {
		return false
	}
	e.history.collected = next
	if next == compacted && e.guard.noRoom() != nil {
		e.background("free space", e.freeSpace())
	}
	return next < compacted
}

// freeSpace compacts all tables, to free the space of removed versions. Pebble itself waits until
// enough tables were written, which never happens while the disk is full.
func (e *Engine) freeSpace() error {
	if err := e.db.Flush(); err != nil {
		return err
	}
	size, err := e.db.EstimateDiskUsage([]byte{0}, []byte{0xff})
	if err != nil {
		return err
	}
	usage, err := e.guard.FS.GetDiskUsage(e.dir)
	if err != nil || usage.AvailBytes < size+leastReserve {
		return err // the new tables would fill the disk beside the old ones
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with this call
		select {
		case <-e.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return e.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
}

// remove adds to batch the removal of the garbage of a change: the version that it replaced and,
// if it is a deletion, itself.
func remove(batch *pebble.Batch, iter *pebble.Iterator, rev uint64) error {
	v, err := iter.ValueAndErr()
	if err != nil {
		return err
	}
	previous, deleted, key, err := parseGarbage(v)
	if err != nil {
		return err
	}
	gone := []uint64{previous}
	if deleted {
		gone = append(gone, rev)
	}
	for _, r := range gone {
		if err := batch.Delete(logKey(r), nil); err != nil {
			return err
		}
		if err := batch.Delete(appendVersionKey(nil, key, r), nil); err != nil {
			return err
		}
	}
	return batch.Delete(iter.Key(), nil)
}
