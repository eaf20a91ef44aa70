package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configures a Dir.
type Options struct {
	// Dir is the directory. It is created if it does not exist. A directory with other files in it
	// is rejected.
	Dir string
	// Cluster is the name of the directory's cluster if there are several; see ClearOthers.
	Cluster string
	// Key encrypts the checkpoints: KeySize bytes, or nil for no encryption.
	Key []byte
	// MaxBytes limits the size of all checkpoints, BytesPerSecond the write rate; 0 means no limit.
	MaxBytes, BytesPerSecond int64
	// FS is the file system; nil for the operating system's.
	FS vfs.FS
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Dir is a directory of checkpoints. It implements checkpoint.Storage.
type Dir struct {
	path     string
	cluster  string
	key      []byte
	maxBytes int64
	fs       vfs.FS
	log      *slog.Logger

	bytesPerSecond int64           // 0: no limit
	unlimited      context.Context // canceled by hurry
	hurry          context.CancelFunc

	mu struct {
		sync.Mutex
		lock    io.Closer        // nil unless this Dir owns the directory
		sizes   map[string]int64 // by file name
		bytes   int64            // their sum
		written int64            // total since Open
		free    time.Time        // when the bytes allowed so far are used up
	}
}

const (
	markerName = "kubeweir-state"
	lockName   = "lock"
	imageExt   = ".image"
	newExt     = ".new"
	// recordExt is the file extension of records.
	recordExt = ".record"
)

func newDir(o Options) *Dir {
	d := &Dir{path: o.Dir, cluster: o.Cluster, key: o.Key, maxBytes: o.MaxBytes, bytesPerSecond: o.BytesPerSecond, fs: o.FS, log: o.Logger}
	d.unlimited, d.hurry = context.WithCancel(context.Background())
	if d.fs == nil {
		d.fs = private{vfs.Default}
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	d.mu.sizes = make(map[string]int64)
	return d
}

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

// create creates or truncates a file.
func (d *Dir) create(name string) (vfs.File, error) {
	if err := d.fs.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.fs.OpenReadWrite(d.file(name), vfs.WriteCategoryUnspecified)
}

// rename gives a file its final name, which another one may have had.
func (d *Dir) rename(from, to string) error {
	err := d.fs.Rename(d.file(from), d.file(to))
	if err == nil {
		err = d.syncDir(d.path)
	}
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.bytes -= d.mu.sizes[to]
		d.mu.sizes[to] = d.mu.sizes[from]
		delete(d.mu.sizes, from)
	}
	return err
}

// syncDir syncs a directory.
func (d *Dir) syncDir(path string) error {
	folder, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (d *Dir) readFile(name string) ([]byte, error) {
	f, err := d.fs.Open(d.file(name))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return content, errors.Join(err, f.Close())
}

// account records the size of a file.
func (d *Dir) account(name string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	grown := size - d.mu.sizes[name]
	d.mu.bytes += grown
	d.mu.written += max(0, grown)
	if d.mu.sizes[name] = size; size == 0 {
		delete(d.mu.sizes, name)
	}
}

// room reports whether n more bytes fit the limit.
func (d *Dir) room(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maxBytes <= 0 || d.mu.bytes+n <= d.maxBytes
}

// pace blocks until n bytes may be written, or Hurry is called.
func (d *Dir) pace(ctx context.Context, n int) error {
	if d.bytesPerSecond <= 0 {
		return ctx.Err()
	}
	d.mu.Lock()
	now := time.Now()
	if d.mu.free.Before(now) {
		d.mu.free = now
	}
	delay := d.mu.free.Sub(now)
	d.mu.free = d.mu.free.Add(time.Duration(float64(n) / float64(d.bytesPerSecond) * float64(time.Second)))
	d.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-d.unlimited.Done():
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Bytes returns the current size of all checkpoints, and the bytes written since Open.
func (d *Dir) Bytes() (now, written int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.bytes, d.mu.written
}

// remove removes a file, if it exists.
func (d *Dir) remove(file string) error {
	if !d.opened() {
		return nil
	}
	if err := d.fs.Remove(d.file(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", file, cause(err))
	}
	d.account(file, 0)
	return nil
}

// opened reports whether this Dir owns the directory.
func (d *Dir) opened() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.lock != nil
}

// errClosed reports that this Dir does not own the directory, or no longer.
var errClosed = errors.New("the state directory is not open")

// Close unlocks the directory. No Reader or Writer may be in use.
func (d *Dir) Close() error {
	d.mu.Lock()
	lock := d.mu.lock
	d.mu.lock = nil
	d.mu.Unlock()
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// cause strips the path, which the caller adds, from an error.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// private is a file system that creates files with mode 0600.
type private struct{ vfs.FS }

// OpenReadWrite implements vfs.FS.
func (p private) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := own(name); err != nil {
		return nil, err
	}
	return p.FS.OpenReadWrite(name, category, opts...)
}

// Lock implements vfs.FS.
func (p private) Lock(name string) (io.Closer, error) {
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) { // only if it is missing: closing a locked file would release the lock
		if err := own(name); err != nil {
			return nil, err
		}
	}
	return p.FS.Lock(name)
}

// own creates a missing file with mode 0600.
func own(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
