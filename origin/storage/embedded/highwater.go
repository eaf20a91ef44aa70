package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble takes a damaged write-ahead log for one of a process that was killed there, and would
// silently drop the changes that follow. So the newest revision is also recorded in a file of its
// own, at most highWaterEvery after it is on disk, and a store that has less when it is opened
// is damaged. Pebble itself finds most damage to younger changes.
const (
	highWaterFile  = "REVISION"
	highWaterEvery = time.Second
)

// A slot is a revision and its checksum. There are two, each in a sector of its own, written in
// turn: when the machine dies, one is intact.
const (
	slotSize  = 12
	slotSpace = 4096
)

// highWater is used by one goroutine at a time: by load, then by its loop.
type highWater struct {
	file  vfs.File
	slot  int64 // to write next
	noted uint64
	wake  chan struct{} // has room for one
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendSlot(buf []byte, rev uint64) []byte {
	buf = binary.BigEndian.AppendUint64(buf, rev)
	return binary.BigEndian.AppendUint32(buf, crc32.Checksum(buf, castagnoli))
}

// parseSlot returns the revision of a slot, 0 if b is not a valid slot.
func parseSlot(b []byte) uint64 {
	if len(b) < slotSize || crc32.Checksum(b[:8], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// open returns the highest revision ever noted, 0 if none, and prepares for noting.
func (h *highWater) open(fsys vfs.FS, dir string) (uint64, error) {
	h.wake = make(chan struct{}, 1)
	path := fsys.PathJoin(dir, highWaterFile)
	_, err := fsys.Stat(path)
	created := errors.Is(err, fs.ErrNotExist)
	if h.file, err = fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return 0, err
	}
	if created {
		return 0, errors.Join(h.file.Sync(), syncDir(fsys, dir))
	}
	for slot := range int64(2) {
		b := make([]byte, slotSize)
		n, err := h.file.ReadAt(b, slot*slotSpace)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if rev := parseSlot(b[:n]); rev > h.noted {
			h.noted, h.slot = rev, 1-slot
		}
	}
	return h.noted, nil
}

// note writes a revision that is on disk.
func (h *highWater) note(rev uint64) error {
	if rev <= h.noted {
		return nil
	}
	if _, err := h.file.WriteAt(appendSlot(nil, rev), h.slot*slotSpace); err != nil {
		return err
	}
	if err := h.file.SyncData(); err != nil {
		return err
	}
	h.noted, h.slot = rev, 1-h.slot
	return nil
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// A lostError is the error of a store that lost acknowledged changes.
type lostError struct {
	has, had uint64
	path     string // of the file that knows
}

func (e *lostError) Error() string {
	return fmt.Sprintf("changes up to revision %d were acknowledged, those after %d are missing; restore it, or remove %s to go on without them", e.had, e.has, e.path)
}

// loadHighWater checks that the store has every revision that was noted.
func (e *Engine) loadHighWater() error {
	had, err := e.highWater.open(e.guard, e.dir)
	if err != nil {
		return err
	}
	if had > e.mu.revision {
		return errors.Join(&lostError{has: e.mu.revision, had: had, path: e.guard.PathJoin(e.dir, highWaterFile)}, e.highWater.file.Close())
	}
	return nil
}

// highWaterLoop notes the newest revision at most once in highWaterEvery, and at the end.
func (e *Engine) highWaterLoop() {
	timer := time.NewTimer(highWaterEvery)
	defer timer.Stop()
	for closed := false; !closed; {
		select {
		case <-e.highWater.wake:
			timer.Reset(highWaterEvery)
			select {
			case <-timer.C:
			case <-e.committed:
				closed = true
			}
		case <-e.committed: // and nothing comes after that
			closed = true
		}
		e.mu.RLock()
		rev := e.mu.revision
		e.mu.RUnlock()
		if err := e.highWater.note(rev); err != nil {
			e.background("note", err)
		}
	}
	_ = e.highWater.file.Close()
}
