package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// DefaultHistoryAge is the minimum age of history before it is compacted, as kube-apiserver has it
// for etcd.
const DefaultHistoryAge = 5 * time.Minute

// firstRevision is the revision of an empty store; the first change has the next one.
const firstRevision = 1

// Options of an Engine.
type Options struct {
	// Dir is the data folder, made (0700) if it does not exist. One Engine at a time
	// uses it.
	Dir string
	// FS holds Dir; nil is the machine's. InMemory() makes a store that ends with the
	// process: for tests.
	FS vfs.FS
	// Logger, nil for none.
	Logger *slog.Logger
	// Registerer of the metrics, nil for none. Close unregisters them.
	Registerer prometheus.Registerer
	// HistoryAge is how long old revisions can be read and watched from at least. 0 means
	// DefaultHistoryAge; below 0 only Compact compacts.
	HistoryAge time.Duration
	// Clock decides when history is compacted and keys expire; nil for the machine's.
	Clock clock.Clock
}

// InMemory returns an empty Options.FS without a disk. A store in it can be closed and
// opened again for as long as the value exists.
func InMemory() vfs.FS { return vfs.NewMem() }

func (o *Options) setDefaults() error {
	if o.Dir == "" {
		return errors.New("a data folder is needed")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.HistoryAge == 0 {
		o.HistoryAge = DefaultHistoryAge
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// An Engine is a storage.Engine in a folder. It is safe for concurrent use.
type Engine struct {
	dir     string
	log     *slog.Logger
	clock   clock.Clock
	age     time.Duration
	guard   *guard
	db      *pebble.DB
	metrics *metrics

	queue  queue
	writer writer // the commit loop's own
	expiry expiry

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closeErr  error
	loops     sync.WaitGroup // of expiry, history, high water and reserve
	committed chan struct{}  // closed when the commit loop has ended

	// life is held for reading while db is used by anyone but the loops, and for
	// writing when it is closed.
	life sync.RWMutex

	// mu guards the state that readers see. It changes at once, when a group of changes is
	// on disk. Only the commit loop changes it, but for the watchers, so
	// it alone may read revision and compacted without mu. Nothing waits with mu held.
	mu struct {
		sync.RWMutex
		revision  uint64 // of the newest change on disk
		compacted uint64 // the oldest revision that can be read
		index     index
		watchers  watchers
	}

	history   history   // the history loop's own, but for wake
	highWater highWater // its loop's own, but for wake
	snapshots snapshots
}

var (
	_ storage.Engine      = (*Engine)(nil)
	_ storage.Snapshotter = (*Engine)(nil)
)

// Open opens the store in a folder, or makes one. Its errors are one sentence for
// the user: the folder is in use by another process, cannot be written, is damaged,
// full, or was written by a newer version.
func Open(opts Options) (*Engine, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	e := newEngine(opts)
	if err := openPebble(e.guard, opts.Dir, e.load); err != nil {
		return nil, openError(opts.Dir, err)
	}
	e.metrics = newMetrics(e)
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(e.metrics); err != nil {
			return nil, errors.Join(fmt.Errorf("metrics: %w", err), e.highWater.file.Close(), e.db.Close())
		}
		e.metrics.registerer = opts.Registerer
	}
	e.guard.open()
	go e.commitLoop()
	e.loops.Go(e.expiryLoop)
	e.loops.Go(e.historyLoop)
	e.loops.Go(e.highWaterLoop)
	e.loops.Go(e.reserveLoop)
	return e, nil
}

func newEngine(opts Options) *Engine {
	e := &Engine{
		dir: opts.Dir, log: opts.Logger, clock: opts.Clock, age: opts.HistoryAge,
		guard:   newGuard(opts.FS, opts.Dir, opts.Logger),
		closing: make(chan struct{}), committed: make(chan struct{}),
	}
	e.queue.init()
	e.expiry.init()
	e.mu.watchers = watchers{}
	return e
}

// load reads the parts that are in memory: the index, the times to live, the marks of history.
func (e *Engine) load(db *pebble.DB) error {
	e.db = db
	if err := e.loadMeta(); err != nil {
		return err
	}
	last, err := e.lastRevision()
	if err != nil {
		return err
	}
	e.mu.revision = max(last, e.mu.compacted, firstRevision)
	if e.mu.index, err = e.loadIndex(); err != nil {
		return err
	}
	if err := e.loadExpiry(); err != nil {
		return err
	}
	if err := e.loadMarks(); err != nil {
		return err
	}
	return e.loadHighWater()
}

// loadMeta checks the format, writes it into an empty store, and reads the compacted revision.
func (e *Engine) loadMeta() error {
	v, err := e.value(metaFormat)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		if err := e.checkEmpty(); err != nil {
			return err
		}
		if err := e.db.Set(metaFormat, binary.AppendUvarint(nil, format), pebble.Sync); err != nil {
			return err
		}
		// The first log is of an older format of Pebble's, in which damage is not found.
		return e.db.Flush()
	case err != nil:
		return err
	}
	has, n := binary.Uvarint(v)
	if n <= 0 {
		return corrupt("the format", v)
	}
	if has > format {
		return &formatError{has: has}
	}
	v, err = e.value(metaCompacted)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(v) != 8:
		return corrupt("the oldest revision", v)
	}
	e.mu.compacted = binary.BigEndian.Uint64(v)
	return nil
}

// checkEmpty fails if a store without a format has keys: it belongs to another program.
func (e *Engine) checkEmpty() error {
	iter, err := e.db.NewIter(nil)
	if err != nil {
		return err
	}
	if iter.First() {
		return errors.Join(corrupt("a key of no format", iter.Key()), iter.Close())
	}
	return iter.Close()
}

// lastRevision returns the revision of the last change in the log. Compaction never removes
// that change: it only removes a change that a later one replaced, or a deletion below the
// revision of another change.
func (e *Engine) lastRevision() (uint64, error) {
	var last uint64
	err := e.scan([]byte{spaceLog}, []byte{spaceLog + 1}, func(iter *pebble.Iterator) error {
		if !iter.Last() {
			return nil
		}
		var err error
		last, err = number(iter.Key())
		return err
	})
	return last, err
}

func (e *Engine) loadIndex() (index, error) {
	x := newIndex()
	err := e.scan([]byte{spaceKeys}, []byte{spaceKeys + 1}, func(iter *pebble.Iterator) error {
		var last []byte
		for ok := iter.First(); ok; ok = iter.Next() {
			escaped, rev, err := splitVersionKey(iter.Key())
			if err != nil {
				return err
			}
			if last != nil && string(escaped) == string(last) {
				continue
			}
			last = append(last[:0], escaped...)
			if rev > e.mu.revision {
				return corrupt("a version without its change", iter.Key())
			}
			if v, err := iter.ValueAndErr(); err != nil {
				return err
			} else if len(v) == 0 {
				x.load(unescape(escaped), rev)
			}
		}
		return nil
	})
	return x, err
}

// scan runs f with an iterator over [lower, upper).
func (e *Engine) scan(lower, upper []byte, f func(*pebble.Iterator) error) error {
	return scanReader(e.db, lower, upper, f)
}

func scanReader(db pebble.Reader, lower, upper []byte, f func(*pebble.Iterator) error) error {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	err = f(iter)
	return errors.Join(err, iter.Error(), iter.Close())
}

// value returns a copy of Pebble's value of a key, or pebble.ErrNotFound.
func (e *Engine) value(key []byte) ([]byte, error) {
	v, closer, err := e.db.Get(key)
	if err != nil {
		return nil, err
	}
	v = append([]byte{}, v...)
	return v, closer.Close()
}

// Err returns why changes are rejected now: a storage.ErrUnavailable or storage.ErrClosed. It
// is nil if changes, or at least deletions, are accepted. Readiness checks use it.
func (e *Engine) Err() error {
	if err := e.closed(context.Background()); err != nil {
		return err
	}
	_, err := e.guard.unavailable()
	return err
}

// CurrentRevision implements storage.Engine. There is no other writer, so the visible
// revision is the current one.
func (e *Engine) CurrentRevision(ctx context.Context) (uint64, error) {
	if err := e.closed(ctx); err != nil {
		return 0, err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mu.revision, nil
}

// Close implements storage.Engine. It finishes changes under way; waiting changes get
// storage.ErrClosed. It leaves a store that stopped writing as a crash would: Pebble's
// goroutines in it stay blocked until the process ends.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() { e.closeErr = e.close() })
	return e.closeErr
}

func (e *Engine) close() error {
	close(e.closing)
	e.guard.close()
	if e.metrics.registerer != nil {
		e.metrics.registerer.Unregister(e.metrics)
	}
	closed := make(chan error, 1)
	go func() { // ends, or is parked for ever by a frozen guard
		<-e.committed
		e.loops.Wait()
		e.life.Lock()
		defer e.life.Unlock()
		// Tables are opened faster than the log, and damage to them is always found.
		closed <- errors.Join(e.db.Flush(), e.snapshots.close(), e.db.Close())
	}()
	select {
	case err := <-closed:
		return err
	case <-e.guard.frozen:
		_, reason := e.guard.unavailable()
		return errors.Join(reason, e.guard.unlock())
	}
}

// closed returns why the engine cannot be used, or the error of ctx.
func (e *Engine) closed(ctx context.Context) error {
	select {
	case <-e.closing:
		return storage.ErrClosed
	default:
		return ctx.Err()
	}
}

// use keeps db open until the returned function is called.
func (e *Engine) use() (func(), error) {
	e.life.RLock()
	if err := e.closed(context.Background()); err != nil {
		e.life.RUnlock()
		return nil, err
	}
	return e.life.RUnlock, nil
}
