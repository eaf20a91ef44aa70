package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// Restored describes the new store of a data folder.
type Restored struct {
	Dir            string
	Keys           int
	From, Revision uint64 // the revisions of the source and of the store
}

func (r Restored) String() string {
	return fmt.Sprintf("restored %s: %d keys of revision %d, continues at revision %d", r.Dir, r.Keys, r.From, r.Revision)
}

// Restore creates the store of a data folder from a snapshot. Its revision is higher by bump.
func Restore(ctx context.Context, path, dataDir string, bump uint64) (Restored, error) {
	f, err := os.Open(path)
	if err != nil {
		return Restored{}, fmt.Errorf("%s: %w", path, UnwrapPath(err))
	}
	defer func() { _ = f.Close() }()
	r, err := snapshot.NewReader(f)
	if err != nil {
		return Restored{}, fmt.Errorf("%s: %w", path, err)
	}
	h := r.Header()
	if h.Revision > math.MaxInt64/2 {
		return Restored{}, fmt.Errorf("%s: the revision %d is too high", path, h.Revision)
	}
	revision := max(h.Revision, 1) + bump
	next := func() (storage.Entry, error) {
		if ctx.Err() != nil {
			return storage.Entry{}, ctx.Err()
		}
		e, err := r.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return e, err
	}
	return restoreStore(dataDir, h.Revision, revision, next)
}

// restoreStore creates the store of a data folder.
func restoreStore(dataDir string, from, revision uint64, next func() (storage.Entry, error)) (Restored, error) {
	dir := filepath.Join(dataDir, StoreFolder)
	keys, err := embedded.Restore(dir, from, revision, next)
	switch {
	case errors.Is(err, fs.ErrExist):
		return Restored{}, fmt.Errorf("--data-dir: %s exists; end its server and move it away", dir)
	case err != nil:
		return Restored{}, err
	}
	return Restored{dir, keys, from, revision}, nil
}
