package store

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// retained holds the snapshots that are kept for exact reads, oldest version first.
//
// A snapshot costs what the collection has replaced since: its churn minus the snapshot's. Because
// older snapshots hold what younger ones hold, the churn since the oldest one bounds the cost of
// all of them, and dropping the oldest is what reduces it.
type retained struct {
	maxAge   time.Duration
	maxBytes int64

	// undo is held while a snapshot is made. It is taken before publish and mu.
	undo sync.Mutex
	mu   struct {
		sync.Mutex
		views []retainedSnapshot
		churn int64 // the collection's
		// floor is above every past version whose snapshot reached maxAge. Snapshots below it are
		// not made again from history: otherwise a client that repeats a read would hold its
		// version forever, whereas kube-apiserver's continue tokens end with etcd's compaction.
		floor uint64
	}
	// oldest is the churn of the oldest snapshot, or noChurn, for the writer to read without a
	// lock.
	oldest atomic.Int64
}

type retainedSnapshot struct {
	view *Snapshot
	made time.Time
}

// maxRetained is the maximum number of retained snapshots, whatever they cost.
const maxRetained = 512

const noChurn = 1<<63 - 1

func (r *retained) init(maxAge time.Duration, maxBytes int64) {
	r.maxAge, r.maxBytes = maxAge, maxBytes
	r.oldest.Store(noChurn)
}

// search finds the first snapshot at rv or above. The caller holds r.mu.
func (r *retained) search(rv uint64) (int, bool) {
	return slices.BinarySearchFunc(r.mu.views, rv, func(v retainedSnapshot, rv uint64) int { return cmp.Compare(v.view.rv, rv) })
}

// get returns the snapshot at rv, or nil, and the floor.
func (r *retained) get(rv uint64) (v *Snapshot, floor uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.search(rv); ok {
		v = r.mu.views[i].view
	}
	return v, r.mu.floor
}

// remove drops the snapshot at rv, if there is one.
func (r *retained) remove(rv uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.search(rv); ok {
		r.mu.views = slices.Delete(r.mu.views, i, i+1)
		r.trimLocked()
	}
}

// above returns the retained snapshot with the lowest version above rv, or head if there is none.
func (r *retained) above(rv uint64, head *Snapshot) *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, _ := r.search(rv); i < len(r.mu.views) && r.mu.views[i].view.rv < head.rv {
		return r.mu.views[i].view
	}
	return head
}

// put adds v, unless it has expired. The age of a version starts anew only while it is the current
// one.
func (r *retained) put(v *Snapshot, current uint64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.search(v.rv)
	if ok && v.rv == current {
		r.mu.views[i].made = now
	}
	if ok || v.rv < r.mu.floor {
		return
	}
	r.mu.views = slices.Insert(r.mu.views, i, retainedSnapshot{view: v, made: now})
	r.mu.churn = max(r.mu.churn, v.churn)
	r.trimLocked()
}

// grown records the collection's churn after a change.
func (r *retained) grown(churn int64) {
	if churn-r.oldest.Load() <= r.maxBytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.churn = max(r.mu.churn, churn)
	r.trimLocked()
}

// expire drops the snapshots that were made maxAge ago. current is the collection's version.
func (r *retained) expire(now time.Time, current uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.views = slices.DeleteFunc(r.mu.views, func(v retainedSnapshot) bool {
		old := now.Sub(v.made) >= r.maxAge
		if old && v.view.rv < current {
			r.mu.floor = max(r.mu.floor, v.view.rv+1)
		}
		return old
	})
	r.trimLocked()
}

func (r *retained) trimLocked() {
	n := 0
	for n < len(r.mu.views) && (len(r.mu.views)-n > maxRetained || r.mu.churn-r.mu.views[n].view.churn > r.maxBytes) {
		n++
	}
	r.mu.views = slices.Delete(r.mu.views, 0, n)
	if len(r.mu.views) == 0 {
		r.oldest.Store(noChurn)
		return
	}
	r.oldest.Store(r.mu.views[0].view.churn)
}

func (r *retained) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.views = nil
	r.trimLocked()
}

// size returns the number of snapshots and an upper bound of what they keep from being freed.
func (r *retained) size(churn int64) (views int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.views) == 0 {
		return 0, 0
	}
	return len(r.mu.views), max(0, churn-r.mu.views[0].view.churn)
}
