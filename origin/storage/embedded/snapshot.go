package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// maxSnapshots is the number of snapshots that may be open. Each keeps replaced tables on disk, and
// nodes of the index in memory.
const maxSnapshots = 4

// Limits of a step of Snapshot.Each, in which the store cannot be closed.
const (
	snapshotStepBytes   = 1 << 20 // and one value
	snapshotStepChanges = 10000
)

// snapshots are the open ones.
type snapshots struct {
	mu   sync.Mutex
	open map[*Snapshot]struct{} // guarded by mu
}

// A Snapshot is a storage.Snapshot. One goroutine at a time uses it.
type Snapshot struct {
	engine   *Engine
	revision uint64
	index    index
	db       *pebble.Snapshot // closed with the engine, if not before
}

// Snapshot implements storage.Snapshotter. The commit loop takes the snapshot between two groups of
// changes: only then do Pebble and memory hold the same ones.
func (e *Engine) Snapshot(ctx context.Context) (storage.Snapshot, error) {
	s := &Snapshot{engine: e}
	if err := e.snapshots.add(s); err != nil {
		return nil, err
	}
	if _, err := e.change(ctx, &change{kind: changeSnapshot, snapshot: s}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (all *snapshots) add(s *Snapshot) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.open) >= maxSnapshots {
		return fmt.Errorf("%w for snapshots: %d are being read", storage.ErrUnavailable, len(all.open))
	}
	if all.open == nil {
		all.open = map[*Snapshot]struct{}{}
	}
	all.open[s] = struct{}{}
	return nil
}

// take is called by the commit loop. The caller of Engine.Snapshot may have given up.
func (s *Snapshot) take() {
	e := s.engine
	e.snapshots.mu.Lock()
	defer e.snapshots.mu.Unlock()
	if _, open := e.snapshots.open[s]; !open {
		return
	}
	e.mu.Lock()
	s.revision, s.index = e.mu.revision, e.mu.index.copy()
	e.mu.Unlock()
	s.db = e.db.NewSnapshot()
}

// Revision implements storage.Snapshot.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Len implements storage.Snapshot.
func (s *Snapshot) Len() int { return s.index.tree.Len() }

// Close implements storage.Snapshot.
func (s *Snapshot) Close() error {
	all := &s.engine.snapshots
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, open := all.open[s]; !open {
		return nil
	}
	delete(all.open, s)
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// close closes all snapshots, because Pebble must not be closed before.
func (all *snapshots) close() (err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for s := range all.open {
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
	}
	clear(all.open)
	return err
}

// Each implements storage.Snapshot. Keys are in the order of their revisions. The store can be closed
// while f runs.
func (s *Snapshot) Each(ctx context.Context, f func(storage.Entry) error) error {
	step := snapshotStep{Snapshot: s, next: firstRevision}
	if err := s.read(func() (err error) {
		step.expires, err = s.expires()
		return err
	}); err != nil {
		return err
	}
	found := 0
	for step.next != 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.read(step.read); err != nil {
			return err
		}
		for _, entry := range step.entries {
			if err := f(entry); err != nil {
				return err
			}
		}
		found += len(step.entries)
	}
	if found != s.Len() {
		return s.engine.readError(corrupt(fmt.Sprintf("%d of %d keys are missing from the log", s.Len()-found, s.Len()), nil))
	}
	return nil
}

// read calls f while the store is open.
func (s *Snapshot) read(f func() error) error {
	release, err := s.engine.use()
	if err != nil {
		return err
	}
	defer release()
	return s.engine.readError(f())
}

// expires returns when revisions expire.
func (s *Snapshot) expires() (map[uint64]int64, error) {
	out := map[uint64]int64{}
	return out, scanReader(s.db, []byte{spaceExpiry}, []byte{spaceExpiry + 1}, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			at, rev, err := parseExpiryKey(iter.Key())
			if err != nil {
				return err
			}
			out[rev] = at
		}
		return nil
	})
}

// A snapshotStep reads some keys of a snapshot at a time.
type snapshotStep struct {
	*Snapshot
	expires map[uint64]int64
	next    uint64 // revision to read next, 0 at the end
	entries []storage.Entry
	buf     []byte // holds the values
}

func (s *snapshotStep) read() error {
	s.entries, s.buf = s.entries[:0], s.buf[:0]
	changes := 0
	return scanReader(s.db, logKey(s.next), []byte{spaceLog + 1}, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			rev, err := number(iter.Key())
			if err != nil {
				return err
			}
			if changes++; rev > s.revision {
				break
			} else if changes > snapshotStepChanges || len(s.buf) >= snapshotStepBytes {
				s.next = rev
				return nil
			}
			if err := s.add(iter, rev); err != nil {
				return err
			}
		}
		s.next = 0
		return nil
	})
}

// add adds the change that iter is at, if it is the newest of its key.
func (s *snapshotStep) add(iter *pebble.Iterator, rev uint64) error {
	v, err := iter.ValueAndErr()
	if err != nil {
		return err
	}
	ent, err := parseEntry(v)
	if err != nil {
		return fmt.Errorf("revision %d: %w", rev, err)
	}
	key := string(ent.key)
	if ent.kind == storage.Deleted || s.index.get(key) != rev {
		return nil
	}
	at := len(s.buf)
	s.buf = append(s.buf, ent.value...)
	entry := storage.Entry{KeyValue: storage.KeyValue{Key: key, Value: s.buf[at:len(s.buf):len(s.buf)], Revision: rev}}
	if expires := s.expires[rev]; expires != 0 {
		entry.Expires = time.UnixMilli(expires)
	}
	s.entries = append(s.entries, entry)
	return nil
}
