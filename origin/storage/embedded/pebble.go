package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// What Pebble may use. Objects are in memory once, in the cache in front, so there
// is little to gain here: the write-ahead log's memtable holds what is hot.
const (
	// memTable is the size of one; it starts at 256 KiB and grows with use.
	memTable = 8 << 20
	// memTables are full ones at most, that wait for the disk; then writers do.
	memTables  = 3
	blockCache = 8 << 20
	openFiles  = 256
	// blockSize holds a few dozen small objects, or one of the usual kind.
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
		EventListener:               &pebble.EventListener{BackgroundError: log.backgroundError, FlushEnd: log.flushEnd},
	}
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = blockSize
	}
	// Values are written in the order of the log, so compactions move most files
	// without reading them: compressing would be most of their cost, and most of a read's.
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	return opts
}

// openPebble opens Pebble, and closes it again if load fails. It does so beside
// the caller, because Pebble tries a flush that fails again without end.
func openPebble(g *guard, dir string, load func(*pebble.DB) error) error {
	opened := make(chan error, 1)
	go func() { // ends, or is parked for ever by a frozen guard
		db, err := pebble.Open(dir, pebbleOptions(g))
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

// A formatError is a store written by a newer version.
type formatError struct{ has uint64 }

func (e *formatError) Error() string {
	return fmt.Sprintf("format %d, this version reads up to %d", e.has, format)
}

// openError words why a store cannot be opened, for the user.
func openError(dir string, err error) error {
	var newer *formatError
	switch {
	case errors.Is(err, errInUse):
		return fmt.Errorf("the data folder %s is in use by another process", dir)
	case errors.As(err, &newer):
		return fmt.Errorf("the data folder %s was written by a newer version of kubeweir (%w)", dir, newer)
	case full(err):
		return fmt.Errorf("%w: the data folder %s cannot be opened (%s)", storage.ErrUnavailable, dir, plain(err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the data folder %s cannot be written (%s)", dir, plain(err))
	case pebble.IsCorruptionError(err), errors.Is(err, errCorrupt):
		return fmt.Errorf("the data folder %s is damaged and was left as it is: %w", dir, err)
	}
	return fmt.Errorf("the data folder %s cannot be opened: %w", dir, err)
}

// readError words why a read failed.
func (e *Engine) readError(err error) error {
	switch {
	case err == nil, errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case pebble.IsCorruptionError(err), errors.Is(err, errCorrupt):
		return fmt.Errorf("%w: the data folder %s is damaged: %w", storage.ErrUnavailable, e.dir, err)
	}
	return fmt.Errorf("%w: reading %s failed: %w", storage.ErrUnavailable, e.dir, err)
}

// pebbleLog passes on what Pebble has to say.
type pebbleLog struct{ guard *guard }

// Infof tells of each flush and compaction.
func (l *pebbleLog) Infof(string, ...any) {}

func (l *pebbleLog) Errorf(format string, args ...any) {
	l.guard.log.Warn("Store reports an error", "dir", l.guard.dir, "error", fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble does not know how to go on, and must not return.
func (l *pebbleLog) Fatalf(format string, args ...any) {
	l.guard.freeze(fmt.Errorf("%w: %s: %w; nothing more is written until a restart", storage.ErrUnavailable, l.guard.dir, fatal(format, args)))
	l.guard.park()
}

// fatal keeps the error among the arguments, if there is one.
func fatal(format string, args []any) error {
	for _, a := range args {
		if err, ok := a.(error); ok {
			return err
		}
	}
	return fmt.Errorf(format, args...)
}

// backgroundError: reading failed. Pebble leaves out what it cannot read for a while.
func (l *pebbleLog) backgroundError(err error) {
	l.guard.log.Error("Store cannot read", "dir", l.guard.dir, "error", err)
}

// flushEnd: Pebble would try a flush that fails again at once, for ever. Once the
// store is open none fails, because the guard does not let it.
func (l *pebbleLog) flushEnd(info pebble.FlushInfo) {
	if info.Err != nil {
		l.guard.freeze(fmt.Errorf("%w: %s: %w", storage.ErrUnavailable, l.guard.dir, info.Err))
	}
}
