package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Room on the disk that is kept back for when it is full, because then too it takes room
// to go on: the change that is being written would otherwise be neither done nor undone;
// a deletion is written before compactions give room back; opening writes what was in the
// logs to tables.
const (
	// runningReserve is given up by the write that finds the disk full, startReserve by
	// one that does so while the store is opened: there may have been no way to
	// provide the other again.
	runningReserve = "RESERVE"
	startReserve   = "RESERVE-START"
	// reserveSize is that of each. Opening needs what three memtables hold; the
	// running one takes some ten thousand deletions and a compaction of their tables.
	reserveSize = 32 << 20
	// leastReserve is what there is of startReserve at least: what is left on the disk
	// may be less than all.
	leastReserve = 4 << 20
	// reserveMargin must be free besides, so that a reserve is not provided and given
	// up in turn.
	reserveMargin = 16 << 20
	// spareUpdates is how many bytes of updates are taken between the reserve's end and
	// its return: most deletions begin with one (a time of deletion, a finalizer that is
	// removed). The rest is for deletions alone.
	spareUpdates = reserveSize / 2
)

// spend gives up a reserve for a write that found no room, and reports whether to try it again: a
// reserve was left, or another write has given one up since g.spent was spent, before this one
// began. Creations are refused from then on, until the reserve is provided again.
func (g *guard) spend(err error, spent int64) bool {
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
			g.log.Warn("Store could not give up its reserve", "dir", g.dir, "error", plain(err))
			continue
		}
		g.spent.Add(1)
		g.runLow(err)
		return true
	}
	return false
}

// runLow refuses creations. mu is held.
func (g *guard) runLow(err error) {
	if g.mu.low != nil {
		return
	}
	g.mu.low = fmt.Errorf("%w: writing to %s failed (%s); deletions are accepted, and the rest when there is room again", storage.ErrNoRoom, g.dir, plain(err))
	g.mu.updates = 0
	g.log.Warn("Store has used up its disk and accepts deletions only", "dir", g.dir, "error", plain(err))
	signal(g.short)
}

// provide makes the reserves that are missing, and returns whether both are there, or
// cannot be had on this file system.
func (g *guard) provide() bool {
	var kept []string
	for _, name := range []string{startReserve, runningReserve} {
		err := g.allocate(name, reserveSize)
		if name == startReserve && err != nil && full(err) {
			for size := int64(reserveSize / 2); size >= leastReserve && g.allocate(name, size) != nil; size /= 2 {
			}
		}
		switch {
		case err == nil:
			kept = append(kept, name)
		case full(err):
			g.mu.Lock()
			g.runLow(err)
			g.mu.Unlock()
			return false
		default:
			g.log.Info("Store keeps no room back for when its disk is full", "dir", g.dir, "error", plain(err))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range kept {
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

// allocate makes one reserve, or a larger one of it. Room that it has already is not
// taken again.
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

// refuses returns why a change is refused while there is no room, nil if it is not, or if
// it conflicts with what exists.
func (e *Engine) refuses(c *change) error {
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

// noRoom returns why creations are refused, nil if they are not.
func (g *guard) noRoom() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.low
}

// reserveLoop provides the reserves again when there is room.
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
