package store

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// AppliedAt is At for the state that was applied, whatever readers see ahead of it.
func (s *Store) AppliedAt(rv uint64, now time.Time) (*Snapshot, error) {
	if v := s.Current(); v.rv == rv {
		return v, nil
	}
	if v := s.retain.get(rv, now); v != nil {
		return v, nil
	}
	// The state may have an event that the mux is about to get. While publish is held they agree,
	// so that undoing does not miss the event.
	s.publish.Lock()
	head := s.Current()
	unknown := s.inGap(rv)
	oldest := s.mux.Oldest()
	s.publish.Unlock()
	switch {
	case rv == head.rv:
		return head, nil
	case rv > head.rv:
		return nil, &TooLargeError{RV: rv, Current: head.rv}
	case unknown || rv < oldest:
		return nil, &ExpiredError{RV: rv, Oldest: oldest}
	}
	return s.undo(head, rv, now)
}

// inGap reports whether rv is a version whose state is not known. It forgets gaps that the history
// has left behind.
func (s *Store) inGap(rv uint64) bool {
	oldest := s.mux.Oldest()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.mu.gaps) > 0 && s.mu.gaps[0].to <= oldest {
		s.mu.gaps = s.mu.gaps[1:]
	}
	return slices.ContainsFunc(s.mu.gaps, func(g gap) bool { return g.from < rv && rv < g.to })
}

// undo makes the snapshot at rv from a later one and retains it, because a chunked list that needed
// it will need it again.
func (s *Store) undo(head *Snapshot, rv uint64, now time.Time) (*Snapshot, error) {
	// Only one at a time: copying a tree marks its nodes as shared, and callers that wait for the
	// same version find it made.
	s.retain.undo.Lock()
	defer s.retain.undo.Unlock()
	if v := s.retain.get(rv, now); v != nil {
		return v, nil
	}
	base := s.retain.above(rv, head)
	v := new(Snapshot)
	*v = *base
	v.rv = rv
	err := s.mux.Since(rv, func(ev *watchmux.Event) bool {
		if ev.RV > base.rv {
			return true
		}
		if v.content == base.content {
			v.content, v.mark = s.Contents.Add(1), Mark{}
			v.tree = base.tree.Copy()
			for key, tree := range base.shards {
				if tree != nil {
					v.shards[key] = tree.Copy()
				}
			}
		}
		v.undo(ev)
		return true
	})
	if err != nil {
		return nil, &ExpiredError{RV: rv, Oldest: s.mux.Oldest()}
	}
	s.retain.put(v, now)
	return v, nil
}

// undo reverts an event. The snapshot may not include it, if it is one of several events of the
// snapshot's version and arrived after the snapshot was taken.
func (v *Snapshot) undo(ev *watchmux.Event) {
	v.churn -= nodeCost
	var replaced *object.Object
	if ev.Prev == nil {
		replaced, _ = v.tree.Delete(ev.Object)
	} else {
		v.churn -= int64(len(ev.Prev.Raw))
		v.bytes += int64(len(ev.Prev.Raw))
		replaced, _ = v.tree.Set(ev.Prev)
	}
	if replaced != nil {
		v.bytes -= int64(len(replaced.Raw))
	}
	for key, tree := range v.shards {
		if tree != nil {
			v.churn -= nodeCost
			replaceHashed(tree, shard.Key(key), replaced, ev.Prev)
		}
	}
}

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
	}
	// oldest is the churn of the oldest snapshot, or noChurn, for the writer to read without a
	// lock.
	oldest atomic.Int64
}

type retainedSnapshot struct {
	view *Snapshot
	used time.Time
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

func (r *retained) get(rv uint64, now time.Time) *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.search(rv)
	if !ok {
		return nil
	}
	r.mu.views[i].used = now
	return r.mu.views[i].view
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

func (r *retained) put(v *Snapshot, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.search(v.rv)
	if ok {
		r.mu.views[i].used = now
		return
	}
	r.mu.views = slices.Insert(r.mu.views, i, retainedSnapshot{view: v, used: now})
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

// expire drops the snapshots that nobody has used for maxAge.
func (r *retained) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.views = slices.DeleteFunc(r.mu.views, func(v retainedSnapshot) bool { return now.Sub(v.used) >= r.maxAge })
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
