package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// limited is a disk of so many bytes.
type limited struct {
	vfs.FS
	capacity atomic.Int64

	mu       sync.Mutex
	reserved map[string]int64 // by path; guarded by mu
}

func newLimited(capacity int64) *limited {
	l := &limited{FS: vfs.NewMem(), reserved: map[string]int64{}}
	l.capacity.Store(capacity)
	return l
}

// used is called with mu locked.
func (l *limited) used() int64 {
	sum := int64(0)
	names, _ := l.FS.List("data")
	for _, name := range names {
		path := l.PathJoin("data", name)
		if info, err := l.FS.Stat(path); err == nil {
			sum += max(info.Size(), l.reserved[path])
		}
	}
	return sum
}

func (l *limited) free() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.capacity.Load()-l.used(), 0)
}

func (l *limited) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(l.free())}, nil
}

func (l *limited) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, name)
	return l.FS.Remove(name)
}

func (l *limited) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, c)
	return l.file(name, f), err
}

func (l *limited) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := l.FS.OpenReadWrite(name, c, opts...)
	return l.file(name, f), err
}

func (l *limited) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.ReuseForWrite(oldname, newname, c)
	return l.file(newname, f), err
}

func (l *limited) file(name string, f vfs.File) vfs.File {
	if f == nil {
		return nil
	}
	return &limitedFile{File: f, disk: l, name: name}
}

type limitedFile struct {
	vfs.File
	disk *limited
	name string
	at   int64
}

// grow takes what a write up to end needs. mu is held.
func (f *limitedFile) grow(end int64) error {
	info, err := f.File.Stat()
	if err != nil {
		return err
	}
	if more := end - max(info.Size(), f.disk.reserved[f.name]); more > 0 && f.disk.used()+more > f.disk.capacity.Load() {
		return syscall.ENOSPC
	}
	return nil
}

func (f *limitedFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.grow(f.at + int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.at += int64(n)
	return n, err
}

func (f *limitedFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.grow(off + int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *limitedFile) Preallocate(off, length int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.grow(off + length); err != nil {
		return err
	}
	f.disk.reserved[f.name] = max(f.disk.reserved[f.name], off+length)
	return nil
}

// fillUp creates objects until there is no room, and returns their revisions by key.
func fillUp(t *testing.T, e *Engine) map[string]uint64 {
	t.Helper()
	value := []byte(strings.Repeat("v", 100_000))
	acked := map[string]uint64{}
	for i := range 10_000 {
		key := fmt.Sprintf("/registry/pods/p%05d", i)
		rev, err := e.Put(context.Background(), key, value, storage.Precondition{}, 0)
		if err == nil {
			acked[key] = rev
			continue
		}
		if errors.Is(err, storage.ErrUncertain) { // it met a compaction that had taken the room, and gives it back
			awaitWritable(t, e)
			if rev, ok := known(t, e)[key]; ok {
				acked[key] = rev
			}
			continue
		}
		if !errors.Is(err, storage.ErrNoRoom) ||
			!strings.Contains(err.Error(), "writing to data failed (no space left on device); deletions are accepted") {
			t.Fatalf("change %d: %v", i, err)
		}
		return acked
	}
	t.Fatal("the disk does not get full")
	return nil
}

// TestFullDiskIsLeftByDeletions: while the disk is full nothing refused is made later, deletions are made, the store can
// be opened, and what was deleted makes room.
func TestFullDiskIsLeftByDeletions(t *testing.T) {
	const spare = 40 << 20
	disk := newLimited(2*reserveSize + reserveMargin + spare)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer func() { mustClose(t, e) }()
	acked := fillUp(t, e)
	if len(acked) < 100 {
		t.Fatalf("full after %d changes", len(acked))
	}
	taken := int64(0) // by others
	for range 2 {
		exact := known(t, e)
		if len(exact) != len(acked) {
			t.Fatalf("%d keys, %d were acknowledged", len(exact), len(acked))
		}
		deleted := 0
		for key, rev := range acked {
			if deleted++; deleted > len(acked)/4 {
				break
			}
			if exact[key] != rev {
				t.Fatalf("%s at %d, acknowledged was %d", key, exact[key], rev)
			}
			// A finalizer goes first, for one.
			rev, err := e.Put(t.Context(), key, []byte("small"), storage.Precondition{Revision: rev}, 0)
			if err == nil {
				_, err = e.Delete(t.Context(), key, storage.Precondition{Revision: rev})
			}
			if err != nil {
				t.Fatal(err)
			}
			delete(acked, key)
		}
		if err := e.Err(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		// Opening finds a full disk.
		mustClose(t, e)
		taken += disk.free()
		disk.capacity.Add(-disk.free())
		e = openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
		if _, err := e.Put(t.Context(), "/registry/pods/new", nil, storage.Precondition{}, 0); !errors.Is(err, storage.ErrNoRoom) || errors.Is(err, storage.ErrUncertain) {
			t.Errorf("a creation: %v", err)
		}
		for key, rev := range acked {
			var conflict *storage.ConflictError
			if _, err := e.Put(t.Context(), key, nil, storage.Precondition{}, 0); !errors.As(err, &conflict) || conflict.Current.Revision != rev {
				t.Errorf("a creation of what exists: %v", err)
			}
			break
		}
	}
	mustVerify(t, e)
	if err := e.Compact(t.Context(), mustRevision(t, e)); err != nil {
		t.Fatal(err)
	}
	disk.capacity.Add(taken)
	creates(t, e)
}

// awaitWritable waits until changes are accepted.
func awaitWritable(t *testing.T, e *Engine) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); e.Err() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(e.Err())
		}
	}
}

// creates waits until creations are accepted again. Pebble leaves alone for half a minute what it could not compact.
func creates(t *testing.T, e *Engine) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		_, err := e.Put(t.Context(), "/registry/pods/new", nil, storage.Precondition{}, 0)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestDeletionsMakeRoom: what was deleted is given back to the disk when history is forgotten, with nobody's help.
func TestDeletionsMakeRoom(t *testing.T) {
	disk := newLimited(2*reserveSize + reserveMargin + 40<<20)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer mustClose(t, e)
	for key, rev := range fillUp(t, e) {
		if _, err := e.Delete(t.Context(), key, storage.Precondition{Revision: rev}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Compact(t.Context(), mustRevision(t, e)); err != nil {
		t.Fatal(err)
	}
	creates(t, e)
}

// TestCompactionThatDoesNotFit: a compaction that finds no room, not even in the reserve, fails and gives back what it has
// taken, and deletions go on.
func TestCompactionThatDoesNotFit(t *testing.T) {
	disk := newLimited(1 << 30)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer mustClose(t, e)
	revisions := map[string]uint64{}
	value := strings.Repeat("v", 100_000)
	for i := range 700 {
		key := fmt.Sprintf("/registry/pods/p%05d", i)
		revisions[key] = mustPut(t, e, key, value, 0)
	}
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	disk.capacity.Add(-disk.free())
	compacted := make(chan error, 1)
	go func() { compacted <- e.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false) }()
	// The compaction meets nobody who writes, so it is the one that finds out.
	select {
	case err := <-compacted:
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the compaction: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the compaction waits, with what it has taken")
	}
	for deadline := time.Now().Add(20 * time.Second); disk.free() < reserveSize/2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it has left %d bytes", disk.free())
		}
	}
	for key, rev := range revisions {
		if _, err := e.Delete(t.Context(), key, storage.Precondition{Revision: rev}); err != nil {
			t.Fatal(err)
		}
	}
	disk.capacity.Add(128 << 20)
	creates(t, e)
}

// TestUncertain: what is being written when no reserve is left is told apart from what is refused.
func TestUncertain(t *testing.T) {
	disk := newLimited(2*reserveSize + reserveMargin + 20<<20)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	rev := mustPut(t, e, "a", "one", 0)
	disk.capacity.Store(1) // others have taken even what the reserve gives back
	var err error
	value := []byte(strings.Repeat("v", 1<<20))
	for range 10 { // the log is longer than what is written to it
		var next uint64
		if next, err = e.Put(t.Context(), "a", value, storage.Precondition{Revision: rev}, 0); err != nil {
			break
		}
		rev = next
	}
	if !errors.Is(err, storage.ErrUnavailable) || !errors.Is(err, storage.ErrUncertain) {
		t.Fatalf("the change that found out: %v", err)
	}
	if _, err = e.Delete(t.Context(), "a", storage.Precondition{Revision: rev}); !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUncertain) {
		t.Errorf("a change afterwards: %v", err)
	}
	disk.capacity.Store(1 << 40)
	creates(t, e)
	if now := known(t, e)["a"]; now != rev+1 {
		t.Errorf("the uncertain change: the key is at %d, was at %d", now, rev)
	}
	mustClose(t, e)
}
