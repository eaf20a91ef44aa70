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

// A guard stands between Pebble and the file system, because Pebble takes a write
// that fails for the end of the process: it calls Fatalf, or panics with locks held.
//
//	    no space       again, or too many open files     any other failure of a write, a failed sync
//	ok ──────────▶ low ──────────────────────────────▶ full ─────────▶ frozen
//	 ▲              │                                   │                 ▲
//	 ├──────────────┘                                   │                 │
//	 └────────────────── space is back ─────────────────┘      ok, low ───┘
//
// low: the disk (or the quota) was full, and a reserve was given up for the write that
// found out, which Pebble has not noticed (reserve.go). Creations are refused until the
// reserve is provided again; deletions and reads go on, and so do updates, for a while.
//
// full: there is no reserve left, or it is the table of open files. The write that found
// out waits and is tried again; Pebble sees a slow disk. Changes are refused meanwhile;
// reads go on. What became of those in that write is not known until it is done.
//
// The tables that a compaction writes do not wait: they are a copy, and while they waited they
// would hold the room that changes wait for. Where there is none, not even in the reserve, the
// compaction fails; Pebble removes them, and begins it again after a while.
//
// frozen: what is on disk is unknown (pages of a failed fsync are not written
// again), so nothing may be written any more: every write waits for ever, as if the
// process had been killed at that instruction. What holds for a crash holds for
// this: everything acknowledged is there when the folder is opened again. Reads go on.
// A store that is being opened has the same two ends: Pebble cannot be trusted to
// clean up after itself either.
type guard struct {
	vfs.FS
	log *slog.Logger
	dir string

	// guarding is set when Pebble has locked the folder: before, errors are passed on.
	guarding atomic.Bool
	// opened is set when the store is open: before, nobody waits for space.
	opened atomic.Bool
	// spent counts the reserves that were given up. It is written with mu held.
	spent atomic.Int64
	// frozen is closed by the change to that state.
	frozen chan struct{}
	// unlock gives the folder's lock back. Set when Pebble takes it.
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
		closing bool          // nobody waits for space any more
		stopped bool          // reason is final, frozen is closed
		crowded time.Time     // when a compaction had no room last
		stalled bool          // Pebble takes no changes until there was a compaction
		held    bool          // that is one of waiting
		// spared are logs that Pebble is done with, kept until it is known that it read
		// all that was in them: until the store is open.
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

// unavailable returns why changes are refused, nil if they are not, and a channel
// that is closed when they are.
func (g *guard) unavailable() (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.down, g.mu.reason
}

var errClosedFull = fmt.Errorf("%w while its disk was full", storage.ErrClosed)

// freeze ends all writing, for ever.
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

// wait and resume count the writes that wait for space. wait returns false if
// there is no use in it.
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
		g.log.Info("Store goes on", "dir", g.dir)
	}
}

// close makes that a write which finds the disk full, or has, freezes the guard:
// the engine closes and waits for nobody.
func (g *guard) close() {
	g.mu.Lock()
	g.mu.closing = true
	waiting := g.mu.waiting > 0
	g.mu.Unlock()
	if waiting {
		g.freeze(errClosedFull)
	}
}

// park never returns: the process is dead as far as the disk is concerned.
func (g *guard) park() { select {} }

// do runs a write until it succeeds.
func (g *guard) do(op func() error) error { return g.run(op, false, true) }

// run runs op until it succeeds, or parks the caller when it fails for good. A compaction's op
// returns an error when there is no room. An op that is not to be tried again is a sync: after it
// has failed, nobody knows what is on disk.
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
		case again && (g.opened.Load() || !compaction) && g.spend(err, spent):
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

// compaction is the category of Pebble's for tables that replace others.
const compaction vfs.DiskWriteCategory = "pebble-compaction"

// crowdedPause is how long no compaction begins to write after one that had no room. Pebble
// itself leaves alone for half a minute what one could not compact, but not its level 0.
const crowdedPause = 5 * time.Second

// crowd notes that a compaction has no room, or no file descriptor.
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

// crowdedLong is how long ago a compaction that had no room may have been for changes to be refused.
const crowdedLong = time.Minute

// stall is called when Pebble begins and ends to take no changes because its level 0 is full.
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

// holdLocked refuses changes while Pebble takes none and no compaction has room, as if one waited
// here, and freezes a store that is being closed.
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

// full: the write failed for want of something that may come back, and left
// nothing undone that trying again does not do.
func full(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// plain is the innermost reason of an error: "no space left on device".
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

// errInUse: another process, or another engine of this one, has the lock.
var errInUse = errors.New("in use by another process")

// A diskError is a write that failed for good. It is a storage.ErrUnavailable.
type diskError struct {
	dir string
	err error
}

func (e *diskError) Error() string {
	return fmt.Sprintf("%v: writing to %s failed (%s); nothing more is written until a restart", storage.ErrUnavailable, e.dir, plain(e.err))
}

func (e *diskError) Unwrap() []error { return []error{storage.ErrUnavailable, e.err} }

// Lock locks the folder. The engine gives the lock back itself when it has to
// leave Pebble as it is.
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

// Open is slow to tell that there are too many open files: Pebble begins a compaction of its
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
		// What failed may have renamed the file. A new one will do.
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

// MkdirAll makes folders for nobody else: there are Secrets in them.
func (g *guard) MkdirAll(dir string, _ os.FileMode) error {
	return g.do(func() error { return g.FS.MkdirAll(dir, 0o700) })
}

// Remove and RemoveAll fail without harm, but a frozen store keeps its files:
// another one may be reading them.
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

// open ends the opening of the store: all in the logs was found. Their removal makes
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
