package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// TestHistoryAge: what is younger than five minutes can be read and watched, what is much older is gone
// from the disk too, also when the engine was closed in between.
func TestHistoryAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		e := openAt(t, Options{Dir: "data", FS: fs})
		defer func() { _ = e.Close() }()
		ctx := context.Background()
		type change struct {
			rev uint64
			at  time.Time
		}
		var changes []change
		rev, retained := uint64(0), mustPut(t, e, "kept", "v", 0)
		for i := range 400 {
			switch {
			case i%7 == 6:
				var err error
				if _, err = e.Delete(ctx, "a", storage.Precondition{Revision: rev}); err != nil {
					t.Fatal(err)
				}
				rev = 0
			default:
				rev = mustPut(t, e, "a", fmt.Sprint(i), rev)
			}
			changes = append(changes, change{mustRevision(t, e), time.Now()})
			if i%100 == 57 {
				mustClose(t, e)
				e = openAt(t, Options{Dir: "data", FS: fs})
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			oldest := mustOldest(t, e)
			for _, c := range changes {
				age := time.Since(c.at)
				if gone := c.rev < oldest; gone && age <= DefaultHistoryAge-3*time.Second {
					t.Fatalf("change %d: revision %d is %v old and compacted to %d", i, c.rev, age, oldest)
				} else if !gone && age > DefaultHistoryAge*12/10 {
					t.Fatalf("change %d: revision %d is %v old and not compacted", i, c.rev, age)
				}
			}
		}
		if kv, err := e.at("kept", retained); err != nil || string(kv.Value) != "v" {
			t.Errorf("kept: %v, %v", kv, err)
		}
		synctest.Wait()
		c, err := readContents(e)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.log); n > 130 {
			t.Errorf("%d changes are left", n)
		}
		mustVerify(t, e)
		mustClose(t, e)
	})
}

func mustOldest(t *testing.T, e *Engine) uint64 {
	t.Helper()
	e.mu.RLock()
	oldest := e.mu.compacted
	e.mu.RUnlock()
	ctx := context.Background()
	if oldest <= 1 {
		return oldest
	}
	if _, err := e.Range(ctx, storage.RangeOptions{Prefix: "a", Revision: oldest - 1}); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("range at %d: %v", oldest-1, err)
	}
	if _, err := e.Range(ctx, storage.RangeOptions{Prefix: "a", Revision: oldest}); err != nil {
		t.Errorf("range at %d: %v", oldest, err)
	}
	for after, want := range map[uint64]error{oldest - 2: storage.ErrCompacted, oldest - 1: nil, oldest: nil} {
		w, err := e.Watch(ctx, storage.WatchOptions{After: after})
		if err != nil {
			t.Fatal(err)
		}
		w.RequestProgress()
		b, err := w.Next(ctx)
		if !errors.Is(err, want) || err == nil && (len(b.Events) == 0 && after < mustRevision(t, e) || len(b.Events) > 0 && b.Events[0].KV.Revision != after+1) {
			t.Errorf("watch after %d of %d: %+v, %v, want %v", after, oldest, b, err, want)
		}
		w.Close()
	}
	return oldest
}

// TestNoHistoryAge: only Compact forgets.
func TestNoHistoryAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		opts := memory()
		opts.HistoryAge = -1
		e := openAt(t, opts)
		defer e.Close()
		rev := mustPut(t, e, "a", "one", 0)
		mustPut(t, e, "a", "two", rev)
		time.Sleep(2 * time.Hour)
		if res, err := e.Range(context.Background(), storage.RangeOptions{Prefix: "a", Revision: rev}); err != nil || string(res.KVs[0].Value) != "one" {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestClockSetBack: history becomes longer, not shorter.
func TestClockSetBack(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var h history
	for i, tc := range []struct {
		at      time.Duration
		want    uint64
		compact bool
	}{
		{0, 0, false}, {time.Minute, 0, false}, {5 * time.Minute, 1, true}, {-time.Hour, 0, false}, {4 * time.Minute, 0, false}, {6 * time.Minute, 2, true},
	} {
		now := start.Add(tc.at)
		h.add(mark{uint64(i + 1), now})
		got := h.outlived(now, DefaultHistoryAge)
		if got != tc.want {
			t.Errorf("step %d: %d, want %d", i, got, tc.want)
		}
		if tc.compact {
			h.forget(got)
		}
	}
}

// TestCompactSteps: what was compacted is removed in steps, and a crash between them does no harm.
func TestCompactSteps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		e := openAt(t, Options{Dir: "data", FS: fs, HistoryAge: -1})
		defer func() { _ = e.Close() }()
		rev := uint64(0)
		for i := range 3*collectStep + 10 {
			rev = mustPut(t, e, "a", fmt.Sprint(i), rev)
		}
		clones := []*vfs.MemFS{fs.CrashClone(vfs.CrashCloneCfg{})}
		if err := e.Compact(context.Background(), rev); err != nil {
			t.Fatal(err)
		}
		clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{}))
		synctest.Wait()
		clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{}))
		mustClose(t, e)
		for i, clone := range clones {
			e = openAt(t, Options{Dir: "data", FS: clone, HistoryAge: -1})
			synctest.Wait()
			mustVerify(t, e)
			c, err := readContents(e)
			if err != nil {
				t.Fatal(err)
			}
			// The newest, and the one it replaced, for whoever watches from there.
			if want := map[bool]int{true: 3*collectStep + 10, false: 2}[i == 0]; len(c.log) != want {
				t.Errorf("clone %d: %d changes left, want %d", i, len(c.log), want)
			}
			mustClose(t, e)
		}
	})
}

// TestCompactEdges are the revisions that Compact takes.
func TestCompactEdges(t *testing.T) {
	e := openAt(t, memory())
	defer mustClose(t, e)
	ctx := context.Background()
	for range 2 {
		for _, rev := range []uint64{0, 1} {
			if err := e.Compact(ctx, rev); err != nil {
				t.Errorf("compact %d: %v", rev, err)
			}
		}
	}
	var future *storage.FutureError
	if err := e.Compact(ctx, 2); !errors.As(err, &future) || future.Current != 1 {
		t.Errorf("error %v, want a FutureError of 1", err)
	}
	rev := mustPut(t, e, "a", "v", 0)
	if rev != 2 {
		t.Errorf("the first change is at %d, want 2", rev)
	}
	if _, err := e.Delete(ctx, "a", storage.Precondition{Revision: rev}); err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(ctx, 3); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, e)
}

// TestExpiry: keys go when their time has come by the injected clock, not before, whatever happened in between.
func TestExpiry(t *testing.T) {
	bubble.Test(t, testExpiry)
}

func testExpiry(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	fs := vfs.NewCrashableMem()
	open := func() *Engine { return openAt(t, Options{Dir: "data", FS: fs, Clock: clock, HistoryAge: -1}) }
	e := open()
	defer func() { _ = e.Close() }()
	ctx := context.Background()
	put := func(key string, expect uint64, ttl time.Duration) uint64 {
		t.Helper()
		rev, err := e.Put(ctx, key, []byte("v"), storage.Precondition{Revision: expect}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	put("a", 0, 10*time.Second)
	put("b", 0, 20*time.Second)
	put("kept", put("kept", 0, 5*time.Second), 0) // a later Put without one
	put("longer", put("longer", 0, 5*time.Second), 30*time.Second)
	put("shorter", put("shorter", 0, 30*time.Second), 15*time.Second)
	after := mustRevision(t, e)
	for i, step := range []struct {
		wait  time.Duration
		gone  string
		crash bool
	}{
		{9 * time.Second, "", false}, {time.Second, "a", false}, {5 * time.Second, "shorter", true},
		{5 * time.Second, "b", false}, {9 * time.Second, "", true}, {time.Second, "longer", false},
	} {
		synctest.Wait() // until the loop waits for the clock
		clock.Step(step.wait)
		synctest.Wait()
		want := after
		if step.gone != "" {
			want++
		}
		if now := mustRevision(t, e); now != want {
			t.Fatalf("step %d: revision %d, want %d: %v", i, now, want, known(t, e))
		}
		if step.gone != "" {
			w, err := e.Watch(ctx, storage.WatchOptions{After: after})
			if err != nil {
				t.Fatal(err)
			}
			b, err := w.Next(ctx)
			if err != nil || len(b.Events) != 1 || b.Events[0].Type != storage.Deleted || b.Events[0].KV.Key != step.gone || string(b.Events[0].Previous.Value) != "v" {
				t.Fatalf("step %d: %+v, %v, want the end of %s", i, b, err, step.gone)
			}
			w.Close()
		}
		after = want
		if step.crash { // what is left is known to the disk
			fs = fs.CrashClone(vfs.CrashCloneCfg{})
			mustClose(t, e)
			e = open()
		}
		mustVerify(t, e)
	}
	if got := known(t, e); len(got) != 1 || got["kept"] == 0 {
		t.Errorf("left: %v", got)
	}
}

// TestExpiryManyAndFull: more than one step at once, and none while the disk is full.
func TestExpiryManyAndFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var isFull atomic.Bool
		e := openAt(t, Options{Dir: "data", HistoryAge: -1, FS: hook(vfs.NewMem(), func(op errorfs.Op) error {
			if isFull.Load() && !isSync(op) {
				return syscall.ENOSPC
			}
			return nil
		})})
		defer e.Close()
		defer isFull.Store(false)
		n := 2*expireStep + 17
		for i := range n {
			if _, err := e.Put(context.Background(), fmt.Sprint("k", i), nil, storage.Precondition{}, time.Duration(60+i%3)*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		isFull.Store(true)
		time.Sleep(30 * time.Second)
		if got := len(known(t, e)); got != n {
			t.Errorf("%d keys while the disk is full, want %d", got, n)
		}
		isFull.Store(false)
		time.Sleep(5 * time.Second)
		if got := known(t, e); len(got) != 0 {
			t.Errorf("%d keys left", len(got))
		}
		mustVerify(t, e)
	})
}
