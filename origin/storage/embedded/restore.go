package embedded

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// RestoredKey is written by Restore, at the revision of the restored store.
const RestoredKey = "kubeweir/restored"

// restoreBatch is how many bytes Restore writes at a time.
const restoreBatch = 1 << 20

// Restore makes a store in dir from keys that were read at a revision. Next returns them in any order, and
// io.EOF at the end. Keys keep their revisions and expiry times. The revision of the new store is current,
// which must be higher; nothing older can be read or watched. Restore returns the number of keys.
//
// dir appears when the store is complete and on disk. If it exists and is not an empty folder, the error is
// an fs.ErrExist. A process that is killed leaves a folder beside it whose name begins with that of dir and
// ".restoring-".
func Restore(dir string, revision, current uint64, next func() (storage.Entry, error)) (keys int, err error) {
	if current <= max(revision, firstRevision) {
		return 0, fmt.Errorf("the revision of the restored store, %d, must be higher than that of its keys, %d", current, revision)
	}
	if err := checkAbsent(dir); err != nil {
		return 0, err
	}
	parent := filepath.Dir(dir)
	if err := makeFolder(parent); err != nil {
		return 0, err
	}
	temporary, err := os.MkdirTemp(parent, filepath.Base(dir)+".restoring-*")
	if err != nil {
		return 0, err
	}
	r := &restore{revision: revision, current: current, next: next, revisions: map[uint64]struct{}{}}
	if err := r.run(temporary); err != nil {
		return 0, errors.Join(err, os.RemoveAll(temporary))
	}
	if err := os.Rename(temporary, dir); err != nil {
		// Another process may have made a store there.
		return 0, errors.Join(cmp.Or(checkAbsent(dir), err), os.RemoveAll(temporary))
	}
	return r.keys - 1, snapshot.SyncDir(parent)
}

// makeFolder creates a folder and its parents, all on disk.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeFolder(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return snapshot.SyncDir(filepath.Dir(dir))
}

// checkAbsent fails if there is something other than an empty folder.
func checkAbsent(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return &fs.PathError{Op: "create", Path: dir, Err: fs.ErrExist}
	}
	return nil
}

type restore struct {
	revision, current uint64
	next              func() (storage.Entry, error)
	db                *pebble.DB
	batch             *pebble.Batch
	keys              int
	revisions         map[uint64]struct{}
	err               error // of next, or of what it returned
}

func (r *restore) run(dir string) error {
	opts := Options{Dir: dir, HistoryAge: -1}
	if err := opts.setDefaults(); err != nil {
		return err
	}
	if err := openPebble(newGuard(opts.FS, dir, opts.Logger), dir, r.load); err != nil {
		if r.err != nil {
			return r.err
		}
		return openError(dir, err)
	}
	if err := r.db.Close(); err != nil {
		return openError(dir, err)
	}
	return r.verify(opts)
}

// load fills an empty store.
func (r *restore) load(db *pebble.DB) error {
	r.db, r.batch = db, db.NewBatch()
	empty := Engine{db: db}
	if err := empty.checkEmpty(); err != nil {
		return err
	}
	r.err = r.copy()
	if r.err != nil {
		return r.err
	}
	r.add(&storage.Entry{KeyValue: storage.KeyValue{Key: RestoredKey, Revision: r.current, Value: fmt.Appendf(nil, `{"revision":%d}`, r.revision)}})
	r.set(metaCompacted, binary.BigEndian.AppendUint64(nil, r.current))
	// Without the format, the store cannot be opened.
	r.set(metaFormat, binary.AppendUvarint(nil, format))
	if err := errors.Join(r.db.Apply(r.batch, pebble.Sync), r.batch.Close()); err != nil {
		return err
	}
	return r.db.Flush()
}

func (r *restore) copy() error {
	for {
		e, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case e.Key == RestoredKey: // of an earlier restore
			continue
		case e.Key == "" || len(e.Key) > maxKey:
			return fmt.Errorf("the key %.100q is empty or longer than %d bytes", e.Key, maxKey)
		case e.Revision <= firstRevision || e.Revision > r.revision:
			return fmt.Errorf("the key %s has the revision %d, which must be from %d to %d", e.Key, e.Revision, firstRevision+1, r.revision)
		}
		if _, taken := r.revisions[e.Revision]; taken {
			return fmt.Errorf("the key %s has the revision %d of another key; a store in a data folder has one change in each revision", e.Key, e.Revision)
		}
		r.add(&e)
		if r.batch.Len() >= restoreBatch {
			if err := r.db.Apply(r.batch, pebble.NoSync); err != nil {
				return err
			}
			r.batch.Reset()
		}
	}
}

func (r *restore) add(e *storage.Entry) {
	r.keys++
	r.revisions[e.Revision] = struct{}{}
	r.set(logKey(e.Revision), appendEntry(nil, storage.Created, 0, e.Key, e.Value))
	r.set(appendVersionKey(nil, e.Key, e.Revision), versionLive)
	if !e.Expires.IsZero() {
		r.set(expiryKey(max(e.Expires.UnixMilli(), 1), e.Revision), []byte(e.Key))
	}
}

// set adds to the batch, which does not fail in memory.
func (r *restore) set(key, value []byte) { _ = r.batch.Set(key, value, nil) }

// verify reads the index of the store as Open does, notes the revision, and counts the keys. It deletes
// no keys that have expired.
func (r *restore) verify(opts Options) error {
	e := newEngine(opts)
	if err := openPebble(e.guard, opts.Dir, e.load); err != nil {
		return openError(opts.Dir, err)
	}
	err := errors.Join(e.highWater.note(e.mu.revision), e.highWater.file.Close(), e.db.Close())
	if keys := e.mu.index.tree.Len(); err == nil && keys != r.keys {
		err = fmt.Errorf("the restored store has %d keys instead of %d: a key occurs twice", keys, r.keys)
	}
	return err
}
