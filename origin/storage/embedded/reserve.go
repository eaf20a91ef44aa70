package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Reserves of disk space for the time when the disk is full. Space is needed even then: the
// change that is being written would otherwise be neither done nor undone; a deletion is
// written before compactions free space; opening writes the changes of the logs to tables.
const (
	// runningReserve is released by the write that finds the disk full, startReserve by
	// one that does so while the store is opened: the other reserve may be spent by then.
	runningReserve = "RESERVE"
	startReserve   = "RESERVE-START"
	// reserveSize is the size of each. Opening needs the size of three memtables; running
	// needs space for some ten thousand deletions and a compaction of their tables.
	reserveSize = 32 << 20
	// leastReserve is the minimum size of startReserve, if the disk has no room for more.
	leastReserve = 4 << 20
	// reserveMargin must be free besides, so that a reserve is not allocated and released
	// in turn.
	reserveMargin = 16 << 20
	// spareUpdates is how many bytes of updates are accepted while the reserve is spent:
	// most deletions begin with one (a time of deletion, a finalizer that is removed). The
	// rest is for deletions alone.
	spareUpdates = reserveSize / 2
)

// use releases a reserve for a write that found no room, and reports whether to try it again: a
// reserve was left, or another write has released one since g.spent was spent, before this one
// began. Creations are rejected from then on, until the reserve is allocated again.
func (g *guard) use(err error, spent int64) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false // other files do not help
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spent.Load() != spent {
		return true
	}
	names := []string{runningReserve}
	if !g.opened.Load() {
		names = append(names, startReserve)
	}
	for _, name := range names {
		path := g.PathJoin(g.dir, name)
		if _, err := g.FS.Stat(path); err != nil {
			continue
		}
		if err := g.FS.Remove(path); err != nil {
			g.log.Warn("Store could not release its reserve", "dir", g.dir, "error", plain(err))
			continue
		}
		g.spent.Add(1)
		g.runLow(err)
		return true
	}
	return false
}

// runLow rejects creations from now on. mu is held.
func (g *guard) runLow(err error) {
	if g.mu.low != nil {
		return
	}
	g.mu.low = fmt.Errorf("%w: writing to %s failed (%s); deletions are accepted, and the rest when there is room again", storage.ErrNoRoom, g.dir, plain(err))
	g.mu.updates = 0
	g.log.Warn("Store has used up its disk and accepts deletions only", "dir", g.dir, "error", plain(err))
	signal(g.short)
}

// provide allocates the missing reserves. It returns whether both exist, or cannot exist on
// this file system.
func (g *guard) provide() bool {
	var retained []string
	for _, name := range []string{startReserve, runningReserve} {
		err := g.allocate(name, reserveSize)
		if name == startReserve && err != nil && full(err) {
			for size := int64(reserveSize / 2); size >= leastReserve && g.allocate(name, size) != nil; size /= 2 {
			}
		}
		switch {
		case err == nil:
			retained = append(retained, name)
		case full(err):
			g.mu.Lock()
			g.runLow(err)
			g.mu.Unlock()
			return false
		default:
			g.log.Info("Store has no disk reserve", "dir", g.dir, "error", plain(err))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range retained {
		if _, err := g.FS.Stat(g.PathJoin(g.dir, name)); err != nil {
			return false // given up again meanwhile
		}
	}
	if g.mu.low != nil {
		g.mu.low = nil
		g.log.Info("Store has room again", "dir", g.dir)
	}
	return true
}

// allocate makes one reserve, or enlarges it. It does not take the room that the reserve has.
func (g *guard) allocate(name string, size int64) error {
	path := g.PathJoin(g.dir, name)
	_, err := g.FS.Stat(path)
	created := errors.Is(err, fs.ErrNotExist)
	if created && name == runningReserve {
		if usage, err := g.FS.GetDiskUsage(g.dir); err == nil && usage.AvailBytes < reserveSize+reserveMargin {
			return syscall.ENOSPC
		}
	}
	f, err := g.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = errors.Join(f.Preallocate(0, size), f.Close())
	if err != nil && created {
		err = errors.Join(err, g.FS.Remove(path))
	}
	return err
}

// rejects returns why a change is rejected while there is no room. It returns nil for a change
// that is accepted or will conflict with an existing key.
func (e *Engine) rejects(c *change) error {
	g := e.guard
	if c.kind != changePut || g.noRoom() == nil || c.expect == 0 && e.held(c.key) != 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.expect != 0 && g.mu.updates+c.cost() <= spareUpdates {
		g.mu.updates += c.cost()
		return nil
	}
	return g.mu.low
}

// noRoom returns why creations are rejected, nil if they are not.
func (g *guard) noRoom() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.low
}

// reserveLoop allocates the reserves again when there is room.
func (e *Engine) reserveLoop() {
	for {
		select {
		case <-e.guard.short:
		case <-e.closing:
			return
		}
		for !e.guard.provide() {
			timer := e.clock.NewTimer(retryEvery)
			select {
			case <-timer.C():
			case <-e.closing:
				timer.Stop()
				return
			}
		}
	}
}
