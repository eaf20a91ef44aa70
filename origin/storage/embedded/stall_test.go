package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/internal/soak"
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

// tables makes n tables of level 0.
func tables(t *testing.T, e *Engine, n int) (rev uint64) {
	t.Helper()
	for i := range n {
		var err error
		if rev, err = e.Put(t.Context(), "/registry/pods/p", fmt.Appendf(nil, "value %d", i), storage.Precondition{Revision: rev}, 0); err != nil {
			t.Fatal(err)
		}
		if err := e.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return rev
}

// TestStalledByCompactions: while no compaction fits for so long that Pebble takes no more changes, they are
// refused, and the store can be closed.
func TestStalledByCompactions(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	disk.writes.Store(true)
	go func() { // until it is parked in Pebble's hands
		for rev, i := uint64(0), 0; ; i++ {
			var err error
			if rev, err = e.Put(context.Background(), "/registry/pods/p", fmt.Appendf(nil, "value %d", i), storage.Precondition{Revision: rev}, 0); err == nil {
				err = e.db.Flush()
			}
			if err != nil {
				return
			}
		}
	}()
	awaitTrue(t, "changes are refused", func() bool { return e.Err() != nil })
	if _, err := e.Put(t.Context(), "/registry/pods/q", nil, storage.Precondition{}, 0); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("another change: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("closed as if all were written")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
}

// awaitTrue waits for what another goroutine is about to do.
func awaitTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestCompactionThatCannotBeSynced: some file systems say at a sync that there is no room.
func TestCompactionThatCannotBeSynced(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer mustClose(t, e)
	disk.syncs.Store(true)
	rev := tables(t, e, 10)
	awaitTrue(t, "a sync fails", func() bool { return disk.failed.Load() > 0 })
	disk.syncs.Store(false)
	if _, err := e.Delete(t.Context(), "/registry/pods/p", storage.Precondition{Revision: rev}); err != nil {
		t.Error(err)
	}
}

// TestOpenedWithoutRoomForACompaction: the compaction that begins when a store is opened may fail.
func TestOpenedWithoutRoomForACompaction(t *testing.T) {
	disk := &cramped{FS: vfs.NewMem()}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	disk.writes.Store(true)
	tables(t, e, 12)
	mustClose(t, e)
	for range soak.Cases(2, 5) {
		mustClose(t, openAt(t, Options{Dir: "data", FS: &slowly{disk}, HistoryAge: -1}))
	}
}

// slowly opens tables slowly, so that a store is as long in being opened as one of many objects.
type slowly struct{ vfs.FS }

func (s *slowly) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if strings.HasSuffix(name, ".sst") {
		time.Sleep(20 * time.Millisecond)
	}
	return f, err
}
