package embedded

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// TestWaitingCreationsLeaveTheReserve: creations that waited when the disk became full are refused as those that come
// later; the reserve is for deletions.
func TestWaitingCreationsLeaveTheReserve(t *testing.T) {
	disk := newLimited(2*reserveSize + reserveMargin + 20<<20)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer mustClose(t, e)
	rev := mustPut(t, e, "a", "one", 0)
	disk.capacity.Add(-disk.free())
	if !e.guard.use(syscall.ENOSPC, e.guard.spent.Load()) {
		t.Fatal("no reserve")
	}
	value := []byte(strings.Repeat("v", 1<<20))
	for i := range 40 { // as if they had been let into the queue before
		c := &change{kind: changePut, key: fmt.Sprint("new", i), value: value, done: make(chan struct{})}
		if err := e.queue.add(c); err != nil {
			t.Fatal(err)
		}
		<-c.done
		if !errors.Is(c.err, storage.ErrNoRoom) || errors.Is(c.err, storage.ErrUncertain) {
			t.Fatalf("creation %d: %v", i, c.err)
		}
	}
	if _, err := e.Delete(t.Context(), "a", storage.Precondition{Revision: rev}); err != nil {
		t.Error(err)
	}
	if now := known(t, e); len(now) != 0 {
		t.Errorf("%d keys", len(now))
	}
}

// allocatingFS is a disk on which somebody else takes what was free as soon as a reserve is provided.
type allocatingFS struct {
	vfs.FS
	taken func()
}

func (s *allocatingFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, opts...)
	return allocatingFile{f, s, name}, err
}

type allocatingFile struct {
	vfs.File
	disk *allocatingFS
	name string
}

func (f allocatingFile) Close() error {
	err := f.File.Close()
	if taken := f.disk.taken; taken != nil && strings.HasSuffix(f.name, runningReserve) {
		f.disk.taken = nil
		taken()
	}
	return err
}

// TestReserveGivenUpWhileProvided: there is no room before the reserves are there.
func TestReserveGivenUpWhileProvided(t *testing.T) {
	disk := &allocatingFS{FS: newLimited(1 << 30)}
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	defer mustClose(t, e)
	disk.taken = func() {
		if !e.guard.use(syscall.ENOSPC, e.guard.spent.Load()) {
			t.Error("no reserve")
		}
	}
	if e.guard.provide() {
		t.Error("both reserves are said to be there")
	}
	if e.guard.noRoom() == nil {
		t.Error("without a reserve creations are accepted")
	}
	creates(t, e)
}

// TestReserveServesConcurrentWrites: of two writes that find the disk full at once, one gives up the reserve, and both
// are tried again. Neither waits, and nothing but creations is refused.
func TestReserveServesConcurrentWrites(t *testing.T) {
	e := openAt(t, Options{Dir: "data", FS: newLimited(1 << 30), HistoryAge: -1})
	defer mustClose(t, e)
	for name, run := range map[string]func(func() error) error{
		"a write":             e.guard.do,
		"one of a compaction": func(op func() error) error { return e.guard.run(op, true, true) },
	} {
		if !e.guard.provide() {
			t.Fatal("no reserve is provided")
		}
		calls := 0
		err := run(func() error {
			if calls++; calls > 1 {
				if _, reason := e.guard.unavailable(); reason != nil {
					t.Errorf("%s waits: %v", name, reason)
				}
				return nil
			}
			if !e.guard.use(syscall.ENOSPC, e.guard.spent.Load()) { // the other write
				t.Error("no reserve")
			}
			return syscall.ENOSPC
		})
		if err != nil || calls != 2 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
}

// TestTakenChangeIsUncertainWhenClosed: a change that is being written when the store is closed on a full disk may be
// found when it is opened again.
func TestTakenChangeIsUncertainWhenClosed(t *testing.T) {
	disk := newLimited(1 << 30)
	e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
	mustPut(t, e, "a", "one", 0)
	disk.mu.Lock() // nothing is written
	c := &change{kind: changePut, key: "b"}
	failed := make(chan error, 1)
	go func() {
		_, err := e.change(t.Context(), c)
		failed <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); c.state.Load() != changeTaken; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the change is not taken")
		}
	}
	e.guard.freeze(fmt.Errorf("%w while its disk was full", storage.ErrClosed))
	if err := <-failed; !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrUncertain) {
		t.Error(err)
	}
	disk.mu.Unlock()
	_ = e.Close()
}
