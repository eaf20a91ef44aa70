package embedded

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// retryEvery is how often a write that found the disk full is tried again.
const retryEvery = 250 * time.Millisecond

// A guard is the file system that Pebble uses. It keeps failed writes from Pebble, which treats
// them as the end of the process: it calls Fatalf, or panics with locks held.
//
//	    no space       again, or too many open files     any other failure of a write, a failed sync
//	ok ──────────▶ low ──────────────────────────────▶ full ─────────▶ frozen
//	 ▲              │                                   │                 ▲
//	 ├──────────────┘                                   │                 │
//	 └────────────────── space is back ─────────────────┘      ok, low ───┘
//
// low: the disk (or the quota) was full, and a reserve was released for the write that
// failed; Pebble has not noticed (reserve.go). Creations are rejected until the reserve is
// allocated again; deletions and reads go on, and so do updates, for a while.
//
// full: there is no reserve left, or the table of open files is full. The write that failed
// waits and is tried again; Pebble sees a slow disk. Changes are rejected meanwhile; reads
// go on. The outcome of the changes in that write is unknown until it succeeds.
//
// The tables that a compaction writes do not wait: they are copies, and while they waited they
// would occupy the room that changes wait for. Without room, even in the reserve, the
// compaction fails; Pebble removes its tables and begins it again after a while.
//
// frozen: the contents of the disk are unknown (pages of a failed fsync are not written
// again), so nothing may be written any more: every write blocks forever, as if the process
// had been killed at that instruction. The guarantees of a crash hold: everything acknowledged
// is there when the folder is opened again. Reads go on. A store that fails while it is
// being opened ends in the same way, as Pebble cannot be trusted to clean up after itself.
type guard struct {
	vfs.FS
	log *slog.Logger
	dir string

	// guarding is set when Pebble has locked the folder: before that, errors are passed on.
	guarding atomic.Bool
	// opened is set when the store is open: before that, no write waits for space.
	opened atomic.Bool
	// spent counts the reserves that were released. It is written with mu held.
	spent atomic.Int64
	// frozen is closed by the change to that state.
	frozen chan struct{}
	// unlock releases the lock of the folder. It is set when Pebble takes the lock.
	unlock func() error
	// short has room for one: a reserve is missing.
	short chan struct{}

	mu struct {
		sync.Mutex
		low     error         // nil unless low
		updates int           // bytes of those accepted since
		reason  error         // nil while ok or low
		waiting int           // writes that wait for space
		down    chan struct{} // closed while there is a reason
		closing bool          // no write waits for space any more
		stopped bool          // reason is final, frozen is closed
		crowded time.Time     // when a compaction had no room last
		stalled bool          // Pebble takes no changes until there was a compaction
		held    bool          // the stall counts as one of waiting
		// spared are logs that Pebble wanted to remove before the store was open. They stay
		// until it is known that all their changes were read.
		spared []string
	}
}

func newGuard(fs vfs.FS, dir string, log *slog.Logger) *guard {
	g := &guard{FS: fs, dir: dir, log: log, frozen: make(chan struct{}), short: make(chan struct{}, 1), unlock: func() error { return nil }}
	g.mu.down = make(chan struct{})
	return g
}

// Unwrap returns the file system behind the guard.
func (g *guard) Unwrap() vfs.FS { return g.FS }

// unavailable returns why changes are rejected, nil if they are not, and a channel
// that is closed when they are.
func (g *guard) unavailable() (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.down, g.mu.reason
}

var errClosedFull = fmt.Errorf("%w while its disk was full", storage.ErrClosed)

// freeze ends all writing for good.
func (g *guard) freeze(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.freezeLocked(reason)
}

func (g *guard) freezeLocked(reason error) {
	if g.mu.stopped {
		return
	}
	g.mu.stopped = true
	if g.mu.reason == nil {
		close(g.mu.down)
	}
	g.mu.reason = reason
	close(g.frozen)
	if !errors.Is(reason, storage.ErrClosed) {
		g.log.Error("Store stopped writing", "dir", g.dir, "error", reason)
	}
}

// wait and resume count the writes that wait for space. wait returns false if the store is
// closing or has stopped.
func (g *guard) wait(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waitLocked(err)
}

func (g *guard) waitLocked(err error) bool {
	if g.mu.closing || g.mu.stopped {
		return false
	}
	g.mu.waiting++
	if g.mu.waiting == 1 {
		g.mu.reason = fmt.Errorf("%w: %s cannot be written now (%s); it goes on when there is room", storage.ErrUnavailable, g.dir, plain(err))
		close(g.mu.down)
		g.log.Warn("Store waits for room on its disk", "dir", g.dir, "error", plain(err))
	}
	return true
}

func (g *guard) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resumeLocked()
}

func (g *guard) resumeLocked() {
	g.mu.waiting--
	if g.mu.waiting == 0 && !g.mu.stopped {
		g.mu.reason, g.mu.down = nil, make(chan struct{})
		g.log.Info("Store accepts changes again", "dir", g.dir)
	}
}

// close freezes the guard if a write waits for space, or as soon as one would: closing the
// engine does not wait for space.
func (g *guard) close() {
	g.mu.Lock()
	g.mu.closing = true
	waiting := g.mu.waiting > 0
	g.mu.Unlock()
	if waiting {
		g.freeze(errClosedFull)
	}
}

// park never returns: for the disk, the process is dead.
func (g *guard) park() { select {} }

// do runs a write until it succeeds.
func (g *guard) do(op func() error) error { return g.run(op, false, true) }

// run runs op until it succeeds, or parks the caller when it fails for good. A compaction's op
// returns an error when there is no room. A sync is not tried again, because the contents of the
// disk are unknown after it has failed.
func (g *guard) run(op func() error, compaction, again bool) error {
	waits := false
	for {
		if g.isFrozen() {
			g.park()
		}
		spent := g.spent.Load()
		err := op()
		switch {
		case err == nil:
			if waits {
				g.resume()
			}
			return nil
		case !g.guarding.Load():
			return err
		case again && (g.opened.Load() || !compaction) && g.use(err, spent):
		case compaction && full(err):
			g.crowd(err)
			return err
		case again && full(err) && g.opened.Load() && (waits || g.wait(err)):
			waits = true
			g.pause()
		default:
			g.freeze(&diskError{dir: g.dir, err: err})
		}
	}
}

// compaction is Pebble's category for tables that replace others.
const compaction vfs.DiskWriteCategory = "pebble-compaction"

// crowdedPause is the time after a compaction without room in which no other begins to write.
// Pebble itself waits half a minute before it compacts the same tables again, but not in level 0.
const crowdedPause = 5 * time.Second

// crowd records that a compaction has no room, or no file descriptor.
func (g *guard) crowd(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Sub(g.mu.crowded) > crowdedLong {
		g.log.Warn("Store has no room, or no file descriptor, for a compaction, which is tried again later", "dir", g.dir, "error", plain(err))
	}
	g.mu.crowded = now
	g.holdLocked(err)
}

// crowdedLong is the time after a compaction without room in which a stall rejects changes.
const crowdedLong = time.Minute

// stall is called when Pebble begins and ends a write stall because its level 0 is full.
func (g *guard) stall(begins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.stalled = begins
	switch {
	case !begins && g.mu.held:
		g.mu.held = false
		g.resumeLocked()
	case begins && !g.mu.crowded.IsZero() && time.Since(g.mu.crowded) < crowdedLong:
		g.holdLocked(syscall.ENOSPC)
	}
}

// holdLocked rejects changes during a write stall in which no compaction has room, as if a write
// waited for space, and freezes a store that is being closed.
func (g *guard) holdLocked(err error) {
	switch {
	case !g.mu.stalled || g.mu.held:
	case g.mu.closing:
		g.freezeLocked(errClosedFull)
	default:
		g.mu.held = g.waitLocked(err)
	}
}

// rest waits until a compaction may begin to write.
func (g *guard) rest() {
	for {
		g.mu.Lock()
		wait := !g.mu.crowded.IsZero() && !g.mu.closing && time.Since(g.mu.crowded) < crowdedPause
		g.mu.Unlock()
		if !wait || g.isFrozen() {
			return
		}
		g.pause()
	}
}

func (g *guard) isFrozen() bool {
	select {
	case <-g.frozen:
		return true
	default:
		return false
	}
}

func (g *guard) pause() {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.frozen:
	}
}

// full reports whether a write failed for lack of a resource that may become available again,
// so that it can be repeated.
func full(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// plain returns the innermost reason of an error: "no space left on device".
func plain(err error) string {
	var path *os.PathError
	var link *os.LinkError
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &path):
		return path.Err.Error()
	case errors.As(err, &link):
		return link.Err.Error()
	}
	return err.Error()
}

// errInUse means that another process, or another engine of this one, has the lock.
var errInUse = errors.New("in use by another process")

// A diskError is the error of a write that failed for good. It is a storage.ErrUnavailable.
type diskError struct {
	dir string
	err error
}

func (e *diskError) Error() string {
	return fmt.Sprintf("%v: writing to %s failed (%s); nothing more is written until a restart", storage.ErrUnavailable, e.dir, plain(e.err))
}

func (e *diskError) Unwrap() []error { return []error{storage.ErrUnavailable, e.err} }

// Lock locks the folder. The engine releases the lock itself when it cannot close Pebble.
func (g *guard) Lock(name string) (io.Closer, error) {
	lock, err := g.FS.Lock(name)
	if err != nil {
		var path *os.PathError
		inUse := !errors.As(err, &path) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES)) ||
			err.Error() == "lock held by current process" // Pebble has no value for it
		if inUse {
			return nil, fmt.Errorf("%w: %w", errInUse, err)
		}
		return nil, err
	}
	g.unlock = sync.OnceValue(lock.Close)
	g.guarding.Store(true)
	return closer(g.unlock), nil
}

type closer func() error

func (c closer) Close() error { return c() }

// file guards the file that open returns.
func (g *guard) file(category vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	f := &guardedFile{guard: g, compaction: category == compaction}
	err := f.run(func() (err error) {
		f.File, err = open()
		return err
	}, true)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == compaction {
		g.rest()
	}
	f, err := g.file(category, func() (vfs.File, error) { return g.FS.Create(name, category) })
	return aheadOf(name, f), err
}

// Open delays the error of too many open files, because Pebble begins a failed compaction of its
// level 0 again at once.
func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil && full(err) && g.opened.Load() {
		g.pause()
	}
	return f, err
}

func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.file(category, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, category, opts...) })
}

func (g *guard) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	tried := false
	f, err := g.file(category, func() (vfs.File, error) {
		// The failed call may have renamed the file. A new one will do.
		if tried {
			return g.FS.Create(newname, category)
		}
		tried = true
		return g.FS.ReuseForWrite(oldname, newname, category)
	})
	return aheadOf(newname, f), err
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	return g.file(vfs.WriteCategoryUnspecified, func() (vfs.File, error) { return g.FS.OpenDir(name) })
}

func (g *guard) Rename(oldname, newname string) error {
	return g.do(func() error { return g.FS.Rename(oldname, newname) })
}

func (g *guard) Link(oldname, newname string) error {
	return g.do(func() error { return g.FS.Link(oldname, newname) })
}

// MkdirAll makes folders that only the owner can read: they contain Secrets.
func (g *guard) MkdirAll(dir string, _ os.FileMode) error {
	return g.do(func() error { return g.FS.MkdirAll(dir, 0o700) })
}

// Remove and RemoveAll may fail without harm, but a frozen store keeps its files:
// another engine may be reading them.
func (g *guard) Remove(name string) error {
	if g.isFrozen() {
		g.park()
	}
	if !g.opened.Load() && strings.HasSuffix(name, ".log") {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mu.spared = append(g.mu.spared, name)
		return nil
	}
	return g.FS.Remove(name)
}

// open ends the opening of the store: all changes in the logs were read. Their removal makes
// room for the reserves.
func (g *guard) open() {
	g.opened.Store(true)
	defer g.provide()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range g.mu.spared {
		if err := g.FS.Remove(name); err != nil { // the next opening finds it
			g.log.Warn("Store could not remove an old log", "dir", g.dir, "error", err)
		}
	}
	g.mu.spared = nil
}

func (g *guard) RemoveAll(name string) error {
	if g.isFrozen() {
		g.park()
	}
	return g.FS.RemoveAll(name)
}

// A guardedFile is a file open for writing. Closing it and reserving room for it
// may fail without harm.
type guardedFile struct {
	vfs.File
	guard      *guard
	compaction bool // a compaction writes it
}

func (f *guardedFile) run(op func() error, again bool) error {
	return f.guard.run(op, f.compaction, again)
}

func (f *guardedFile) Write(p []byte) (int, error) {
	written := 0
	err := f.run(func() error {
		n, err := f.File.Write(p[written:])
		written += n
		return err
	}, true)
	return written, err
}

func (f *guardedFile) WriteAt(p []byte, off int64) (int, error) {
	n := 0
	err := f.run(func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	}, true)
	return n, err
}

func (f *guardedFile) Sync() error { return f.run(f.File.Sync, false) }

func (f *guardedFile) SyncData() error { return f.run(f.File.SyncData, false) }

func (f *guardedFile) SyncTo(length int64) (bool, error) {
	all := false
	err := f.run(func() (err error) {
		all, err = f.File.SyncTo(length)
		return err
	}, false)
	return all, err
}
