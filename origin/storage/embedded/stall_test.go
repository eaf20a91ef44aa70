package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// cramped is a disk that has no room for compactions, and for nothing else but them.
type cramped struct {
	vfs.FS
	writes, syncs atomic.Bool // fail
	failed        atomic.Int64
}

func (c *cramped) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	if err != nil || category != compaction {
		return f, err
	}
	return &crampedFile{File: f, disk: c}, nil
}

type crampedFile struct {
	vfs.File
	disk *cramped
}

func (f *crampedFile) Write(p []byte) (int, error) {
	if f.disk.writes.Load() {
		f.disk.failed.Add(1)
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

func (f *crampedFile) full() error {
	if f.disk.syncs.Load() {
		f.disk.failed.Add(1)
		return syscall.ENOSPC
	}
	return nil
}

func (f *crampedFile) Sync() error     { return errors.Join(f.full(), f.File.Sync()) }
func (f *crampedFile) SyncData() error { return errors.Join(f.full(), f.File.SyncData()) }

// tables makes n tables of level 0, until changes are not made any more.
func tables(t *testing.T, e *Engine, n int) (rev uint64, err error) {
	t.Helper()
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		rev, err = e.Put(ctx, "/registry/pods/p", fmt.Appendf(nil, "value %d", i), storage.Precondition{Revision: rev}, 0)
		cancel()
		if err != nil {
			return rev, err
		}
		flushed, err := e.db.AsyncFlush()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-flushed:
		case <-time.After(10 * time.Second):
			t.Fatal("no flush")
		}
	}
	return rev, nil
}

// TestStalledByCompactions: while no compaction fits for so long that Pebble takes no more changes, they are
// refused, and the store can be closed.
func TestStalledByCompactions(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	disk.writes.Store(true)
	stuck := make(chan error, 1)
	go func() {
		rev := uint64(0)
		for i := 0; ; i++ {
			var err error
			if rev, err = e.Put(context.Background(), "/registry/pods/p", fmt.Appendf(nil, "value %d", i), storage.Precondition{Revision: rev}, 0); err == nil {
				err = e.db.Flush()
			}
			if err != nil {
				stuck <- err
				return
			}
		}
	}()
	time.Sleep(5 * time.Second)
	t.Logf("read amplification %d; Err() = %v", e.db.Metrics().Levels[0].Sublevels, e.Err())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	// two: the first may fit into the memtable; it does not if a flush waits
	for i := range 2 {
		_, err := e.Put(ctx, fmt.Sprint("/registry/pods/q", i), nil, storage.Precondition{}, 0)
		t.Logf("another change: %v", err)
	}
	if e.Err() == nil {
		t.Error("changes wait, and the store says that it takes them")
	}
	before := disk.failed.Load()
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		t.Logf("close: %v", err)
	case <-time.After(10 * time.Second):
		t.Errorf("Close hangs; %d compactions failed meanwhile", disk.failed.Load()-before)
		disk.writes.Store(false)
		<-closed
	}
}

// TestCompactionThatCannotBeSynced: some filesystems say at a sync that there is no room.
func TestCompactionThatCannotBeSynced(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer e.Close()
	disk.syncs.Store(true)
	_, err := tables(t, e, 10)
	time.Sleep(time.Second)
	if err != nil || e.Err() != nil || disk.failed.Load() == 0 {
		t.Errorf("%d failed; %v, %v", disk.failed.Load(), err, e.Err())
	}
}

// TestOpenedWithoutRoomForACompaction: the compaction that begins when a store is opened may fail.
func TestOpenedWithoutRoomForACompaction(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	disk.writes.Store(true)
	if _, err := tables(t, e, 12); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	failed := 0
	for range 5 {
		slow := &slowly{FS: disk}
		e, err := Open(Options{Dir: "data", FS: slow, HistoryAge: -1})
		if err != nil {
			failed++
			t.Log(err)
			continue
		}
		mustClose(t, e)
	}
	if failed > 0 {
		t.Errorf("%d of 5 failed", failed)
	}
}

// slowly reads slowly what is read while a store is loaded: a store of many objects.
type slowly struct{ vfs.FS }

func (s *slowly) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil || len(name) < 4 || name[len(name)-4:] != ".sst" {
		return f, err
	}
	time.Sleep(20 * time.Millisecond)
	return f, nil
}
