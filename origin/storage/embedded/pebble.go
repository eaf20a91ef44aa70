package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Limits of Pebble's memory. Objects are in memory once, in the cache in front, so larger limits
// would gain little: the memtables hold the newest changes.
const (
	// memTable is the size of a memtable; the first has 256 KiB, and each next one twice as much.
	memTable = 8 << 20
	// memTables is the number of memtables that may wait for the disk; then writers wait.
	memTables  = 3
	blockCache = 8 << 20
	openFiles  = 256
	// blockSize fits a few dozen small objects, or one Pod.
	blockSize = 8 << 10
)

func pebbleOptions(g *guard) *pebble.Options {
	log := &pebbleLog{guard: g}
	opts := &pebble.Options{
		FS:                          g,
		Logger:                      log,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: memTables,
		CacheSize:                   blockCache,
		MaxOpenFiles:                openFiles,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       32,
		LBaseMaxBytes:               64 << 20,
		EventListener: &pebble.EventListener{
			BackgroundError: log.backgroundError, DataCorruption: log.corruption,
			WriteStallBegin: func(info pebble.WriteStallBeginInfo) { g.stall(strings.HasPrefix(info.Reason, "L0")) },
			WriteStallEnd:   func() { g.stall(false) },
		},
	}
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = blockSize
	}
	// Values are in the order of the log, so compactions move most files without reading
	// them, and little is left but compression. BenchmarkPut/clients=32, CPU per change,
	// six runs each: 28-35 us without it, 37-43 us with the fastest; a range of 5,000 objects
	// is a fifth slower with it. etcd does not compress either.
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	return opts
}

// openPebble opens Pebble, and closes it again if load fails. It does so beside
// the caller, because a write that fails does not return (see guard).
func openPebble(g *guard, dir string, load func(*pebble.DB) error) error {
	opened := make(chan error, 1)
	go func() { // ends, or is parked for ever by a frozen guard
		db, err := pebbleOpen(dir, g)
		if err == nil {
			if err = load(db); err != nil {
				err = errors.Join(err, db.Close())
			}
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-g.frozen:
		_, err := g.unavailable()
		return errors.Join(err, g.unlock())
	}
}

// pebbleOpen opens Pebble and returns its panics as errors.
func pebbleOpen(dir string, g *guard) (db *pebble.DB, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			err = fmt.Errorf("%v", r)
		}
	}()
	return pebble.Open(dir, pebbleOptions(g))
}

// A formatError is the error of a store that a newer version wrote.
type formatError struct{ has uint64 }

func (e *formatError) Error() string {
	return fmt.Sprintf("format %d, this version reads up to %d", e.has, format)
}

// openError explains to the user why a store cannot be opened.
func openError(dir string, err error) error {
	var newer *formatError
	var disk *diskError
	var lost *lostError
	switch {
	case errors.Is(err, errInUse):
		return fmt.Errorf("the data folder %s is in use by another process", dir)
	case errors.As(err, &newer):
		return fmt.Errorf("the data folder %s was written by a newer version of kubeweir (%w)", dir, newer)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the data folder %s cannot be written (%s)", dir, plain(err))
	case errors.As(err, &disk), full(err):
		return fmt.Errorf("%w: the data folder %s cannot be opened (%s)", storage.ErrUnavailable, dir, plain(err))
	case errors.As(err, &lost), pebble.IsCorruptionError(err), errors.Is(err, errCorrupt):
		return fmt.Errorf("the data folder %s is damaged: %w", dir, firstLine{err})
	}
	return fmt.Errorf("the data folder %s cannot be opened: %w", dir, firstLine{err})
}

// firstLine is an error without the lines that Pebble adds for its developers.
type firstLine struct{ error }

func (e firstLine) Error() string {
	line, _, _ := strings.Cut(e.error.Error(), "\n")
	return line
}

func (e firstLine) Unwrap() error { return e.error }

// readError adds the folder to the error of a read.
func (e *Engine) readError(err error) error {
	switch {
	case err == nil, errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case pebble.IsCorruptionError(err), errors.Is(err, errCorrupt):
		return fmt.Errorf("%w: the data folder %s is damaged: %w", storage.ErrUnavailable, e.dir, firstLine{err})
	}
	return fmt.Errorf("%w: reading %s failed: %w", storage.ErrUnavailable, e.dir, firstLine{err})
}

// pebbleLog passes Pebble's messages on to the logger.
type pebbleLog struct{ guard *guard }

// Infof drops messages about each flush and compaction.
func (l *pebbleLog) Infof(string, ...any) {}

func (l *pebbleLog) Errorf(format string, args ...any) {
	l.guard.log.Warn("Store error", "dir", l.guard.dir, "error", fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble cannot go on. It must not return.
func (l *pebbleLog) Fatalf(format string, args ...any) {
	l.guard.freeze(&diskError{dir: l.guard.dir, err: fatal(format, args)})
	l.guard.park()
}

// fatal returns the error among the arguments, or the message as one.
func fatal(format string, args []any) error {
	for _, a := range args {
		if err, ok := a.(error); ok {
			return err
		}
	}
	return fmt.Errorf(format, args...)
}

// backgroundError is called when a background read fails, or when a compaction has no room or
// no file descriptor; Pebble retries later. No other write fails, because of the guard.
func (l *pebbleLog) backgroundError(err error) {
	if full(err) {
		l.guard.crowd(err)
		return
	}
	l.guard.log.Error("Store background error", "dir", l.guard.dir, "error", err)
}

// corruption is called when a reader finds damaged data. The reader gets an error.
func (l *pebbleLog) corruption(info pebble.DataCorruptionInfo) {
	l.guard.log.Error("Store found damaged data", "dir", l.guard.dir, "path", info.Path, "error", info.Details)
}
