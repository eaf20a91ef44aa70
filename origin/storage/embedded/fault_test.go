package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/origin/storage"
)

func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

// TestDiskFull: changes are refused while the disk is full, reads go on, and so do changes when
// there is room again.
func TestDiskFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		var isFull atomic.Bool
		e := openAt(t, Options{Dir: "data", HistoryAge: -1, FS: hook(mem, func(op errorfs.Op) error {
			if isFull.Load() && !isSync(op) && op.Kind != errorfs.OpRemove {
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}
			return nil
		})})
		defer e.Close()
		defer isFull.Store(false)
		ctx := context.Background()
		r := newRecord()
		c := newClient("c", 1, r, 20000)
		for round := range 5 {
			isFull.Store(false)
			time.Sleep(2 * retryEvery)
			if err := e.Err(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			for range 30 {
				if err := c.step(e); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			c.known = known(t, e) // a conflict would be told without a write
			isFull.Store(true)
			// The change under way is refused too, and may happen later.
			for range 3 {
				err := c.step(e)
				if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "data cannot be written now (no space left on device)") {
					t.Fatalf("round %d: %v, want ErrUnavailable", round, err)
				}
			}
			if err := e.Err(); !errors.Is(err, storage.ErrUnavailable) {
				t.Fatalf("round %d: %v, want ErrUnavailable", round, err)
			}
			if res, err := e.Range(ctx, storage.RangeOptions{Prefix: "/registry/", Count: true}); err != nil || len(res.KVs) == 0 || int(res.Count) != len(res.KVs) {
				t.Fatalf("round %d: %d keys, %v", round, len(res.KVs), err)
			}
			if err := e.Compact(ctx, mustRevision(t, e)); !errors.Is(err, storage.ErrUnavailable) {
				t.Fatalf("round %d: compact %v, want ErrUnavailable", round, err)
			}
		}
		isFull.Store(false)
		time.Sleep(2 * retryEvery)
		mustVerify(t, e)
		mustClose(t, e)
		after := openAt(t, Options{Dir: "data", FS: mem.CrashClone(vfs.CrashCloneCfg{}), HistoryAge: -1})
		if err := errors.Join(verify(after), r.check(after, r.acked)); err != nil {
			t.Error(err)
		}
		mustClose(t, after)
	})
}

func mustRevision(t testing.TB, e *Engine) uint64 {
	t.Helper()
	rev, err := e.CurrentRevision(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// TestDiskFullAnywhere lets every single write but syncs find the disk full once; it is as if nothing
// had happened.
func TestDiskFullAnywhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		var armed atomic.Bool
		var mu sync.Mutex // guards the next three
		failed, ops, last := map[string]bool{}, 0, ""
		e := openAt(t, Options{Dir: "data", HistoryAge: -1, FS: inject(mem, func(op errorfs.Op) error {
			if !armed.Load() || op.Kind.ReadOrWrite() == errorfs.OpIsRead || isSync(op) || op.Kind == errorfs.OpFileClose {
				return nil
			}
			// Each second write of each file, so that none fails for ever.
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprint(op.Kind, op.Path)
			if failed[key] = !failed[key]; failed[key] {
				ops++
				last = fmt.Sprint(op)
				return syscall.EDQUOT
			}
			return nil
		})})
		defer e.Close()
		armed.Store(true)
		defer armed.Store(false)
		r := newRecord()
		c := newClient("c", 2, r, 20000)
		for range 150 {
			if err := c.step(e); err != nil && !errors.Is(err, storage.ErrUnavailable) {
				mu.Lock()
				defer mu.Unlock()
				t.Fatalf("after %s: %v", last, err)
			}
			time.Sleep(2 * retryEvery) // for what is under way
			c.known = known(t, e)
		}
		armed.Store(false)
		time.Sleep(2 * retryEvery)
		mu.Lock()
		defer mu.Unlock()
		if ops < 100 {
			t.Errorf("only %d writes found the disk full", ops)
		}
		if err := errors.Join(e.Err(), verify(e), r.check(e, r.acked)); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// known is what a client that has just read everything knows; nothing if that fails.
func known(t testing.TB, e *Engine) map[string]uint64 {
	res, err := e.Range(context.Background(), storage.RangeOptions{KeysOnly: true})
	if err != nil && t != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, kv := range res.KVs {
		all[kv.Key] = kv.Revision
	}
	return all
}

// TestCloseWhileFull: nobody waits for room.
func TestCloseWhileFull(t *testing.T) {
	if alone(t) {
		return
	}
	mem := vfs.NewMem()
	var isFull atomic.Bool
	e := openAt(t, Options{Dir: "data", FS: hook(mem, func(op errorfs.Op) error {
		if isFull.Load() {
			return syscall.ENOSPC
		}
		return nil
	})})
	rev := mustPut(t, e, "a", "one", 0)
	isFull.Store(true)
	if _, err := e.Put(context.Background(), "a", []byte("two"), storage.Precondition{Revision: rev}, 0); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	if err := e.Close(); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("close: %v", err)
	}
	after := openAt(t, Options{Dir: "data", FS: mem}) // the lock was given back
	if kv, err := after.at("a", rev); err != nil || string(kv.Value) != "one" {
		t.Errorf("%v, %v", kv, err)
	}
	mustClose(t, after)
}

// TestDiskFails lets every single write fail once, for good or only that one: the store stops and says so, reads go
// on, and all that was acknowledged is there when it is opened again.
func TestDiskFails(t *testing.T) {
	if alone(t) {
		return
	}
	frozen, harmless := 0, 0
	for at := 0; ; at += soak.Cases(2, 1) + at/40 {
		mem := vfs.NewCrashableMem()
		var n atomic.Int64
		n.Store(-1 << 40)
		e := openAt(t, Options{Dir: "data", HistoryAge: -1, FS: hook(mem, func(op errorfs.Op) error {
			if n.Add(1)-1 == int64(at) {
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.EIO}
			}
			return nil
		})})
		n.Store(0)
		r := newRecord()
		err := script(e, r, 60)
		closed := err == nil
		if closed {
			err = e.Close() // what fails in the background fails later
		}
		if err == nil {
			if n.Load() <= int64(at) {
				break
			}
			harmless++ // removing a file failed, or closing one
			continue
		}
		frozen++
		if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "nothing more is written until a restart") {
			t.Fatalf("write %d: %v", at, err)
		}
		if !closed {
			_, err := e.Range(context.Background(), storage.RangeOptions{Prefix: "/"})
			if err = errors.Join(err, r.check(e, r.acked)); err != nil {
				t.Errorf("write %d: reading: %v", at, err)
			}
		}
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(at), 5))})
		if err := e.Close(); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("write %d: close: %v", at, err)
		}
		for _, fs := range []vfs.FS{crashed, mem} {
			after, err := Open(Options{Dir: "data", FS: fs, HistoryAge: -1})
			if err != nil {
				t.Fatalf("write %d: %v", at, err)
			}
			if err := errors.Join(verify(after), r.check(after, r.acked)); err != nil {
				t.Fatalf("write %d: %v", at, err)
			}
			mustClose(t, after)
		}
	}
	t.Logf("%d failures stopped the store, %d did no harm", frozen, harmless)
	if frozen < soak.Cases(25, 50) {
		t.Error("too few failures")
	}
}

// TestOpenFails lets every single operation of opening fail once, some of them in the short form: it is an error, and no
// harm.
func TestOpenFails(t *testing.T) {
	if alone(t) {
		return
	}
	start := vfs.NewCrashableMem()
	e := openAt(t, Options{Dir: "data", FS: start, HistoryAge: -1})
	r := newRecord()
	if err := script(e, r, 40); err != nil {
		t.Fatal(err)
	}
	acked := r.copy()
	used := start.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, e)
	stride := soak.Cases(9, 1)
	for i, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for name, from := range map[string]*vfs.MemFS{"empty": vfs.NewCrashableMem(), "used": used} {
			for at := i * stride / 2; ; at += stride {
				fs := from.CrashClone(vfs.CrashCloneCfg{})
				var n atomic.Int64
				e, err := Open(Options{Dir: "data", HistoryAge: -1, FS: hook(fs, func(op errorfs.Op) error {
					if n.Add(1)-1 == int64(at) {
						return &os.PathError{Op: "write", Path: op.Path, Err: errno}
					}
					return nil
				})})
				if err == nil {
					_ = e.Close() // the failure may have come behind opening
					if n.Load() <= int64(at) {
						break
					}
				} else if !strings.Contains(err.Error(), "the data folder data cannot be opened") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, operation %d: %v", name, at, err)
				}
				after, err := Open(Options{Dir: "data", FS: fs, HistoryAge: -1})
				if err != nil {
					t.Fatalf("%s, operation %d: %v", name, at, err)
				}
				err = verify(after)
				if name == "used" {
					err = errors.Join(err, r.check(after, acked))
				}
				if err != nil {
					t.Fatalf("%s, operation %d: %v", name, at, err)
				}
				mustClose(t, after)
			}
		}
	}
}

// TestOpenErrors are one sentence each.
func TestOpenErrors(t *testing.T) {
	if alone(t) {
		return
	}
	used := func(t *testing.T) *vfs.MemFS {
		fs := vfs.NewMem()
		e := openAt(t, Options{Dir: "data", FS: fs})
		for i := range 50 {
			mustPut(t, e, fmt.Sprint("key", i), strings.Repeat("v", 10000), 0)
		}
		mustClose(t, e)
		// A second opening has moved all to tables, and the log is empty.
		mustClose(t, openAt(t, Options{Dir: "data", FS: fs}))
		return fs
	}
	for _, tc := range []struct {
		name string
		fs   func(t *testing.T) vfs.FS
		want string
	}{
		{"no folder given", func(*testing.T) vfs.FS { return nil }, "a data folder is needed"},
		{"in use", func(t *testing.T) vfs.FS {
			fs := vfs.NewMem()
			e := openAt(t, Options{Dir: "data", FS: fs})
			t.Cleanup(func() { mustClose(t, e) })
			return fs
		}, "the data folder data is in use by another process"},
		{"read-only disk", func(t *testing.T) vfs.FS {
			return hook(used(t), func(op errorfs.Op) error { return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EROFS} })
		}, "the data folder data cannot be written (read-only file system)"},
		{"no permission", func(t *testing.T) vfs.FS {
			return hook(used(t), func(op errorfs.Op) error { return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EACCES} })
		}, "the data folder data cannot be written (permission denied)"},
		{"full disk", func(t *testing.T) vfs.FS {
			return hook(used(t), func(op errorfs.Op) error {
				if op.Kind == errorfs.OpLock || op.Kind == errorfs.OpMkdirAll || isSync(op) {
					return nil
				}
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			})
		}, "the store is unavailable: the data folder data cannot be opened (no space left on device)"},
		{"newer format", func(t *testing.T) vfs.FS {
			fs := used(t)
			edit(t, fs, func(db *pebble.DB) error { return db.Set(metaFormat, []byte{format + 1}, pebble.Sync) })
			return fs
		}, "the data folder data was written by a newer version of kubeweir (format 2, this version reads up to 1)"},
		{"somebody else's", func(t *testing.T) vfs.FS {
			fs := vfs.NewMem()
			edit(t, fs, func(db *pebble.DB) error { return db.Set([]byte("x"), []byte("y"), pebble.Sync) })
			return fs
		}, "the data folder data is damaged: "},
		{"damaged manifest", func(t *testing.T) vfs.FS { return damage(t, used(t), "MANIFEST") }, "the data folder data is damaged: "},
		{"damaged log", func(t *testing.T) vfs.FS {
			fs := crashed(t)
			flip(t, fs, ".log", 10000)
			return fs
		}, "the data folder data is damaged: "},
		{"damaged end of log", func(t *testing.T) vfs.FS {
			fs := crashed(t)
			flip(t, fs, ".log", 190000)
			return fs
		}, "the data folder data is damaged: changes up to revision 41 were acknowledged, those after 38 are missing; restore it, or remove data/REVISION to go on without them"},
		{"lost log", func(t *testing.T) vfs.FS {
			fs := crashed(t)
			each(t, fs, ".log", func(path string) error { return fs.Remove(path) })
			return fs
		}, "the data folder data is damaged: changes up to revision 41 were acknowledged, those after 1 are missing; restore it, or remove data/REVISION to go on without them"},
		{"damaged table", func(t *testing.T) vfs.FS { return damage(t, used(t), ".sst") }, "the data folder data is damaged: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := Options{Dir: "data", FS: tc.fs(t)}
			if opts.FS == nil {
				opts.Dir = ""
			}
			e, err := Open(opts)
			if err == nil {
				_ = e.Close()
				t.Fatal("opened")
			}
			t.Log(err)
			if !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q", err, tc.want)
			}
		})
	}
}

func edit(t *testing.T, fs vfs.FS, f func(*pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open("data", pebbleOptions(newGuard(fs, "data", discard())))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// crashed is the disk of a store that was killed a while after its last change.
func crashed(t *testing.T) (fs *vfs.MemFS) {
	bubble.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		e := openAt(t, Options{Dir: "data", FS: mem})
		for i := range 40 {
			mustPut(t, e, fmt.Sprint("key", i), strings.Repeat("v", 5000), 0)
		}
		time.Sleep(2 * highWaterEvery)
		fs = mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, e)
	})
	return fs
}

// each calls f for the files whose names contain part; there must be one.
func each(t *testing.T, fs vfs.FS, part string, f func(path string) error) {
	t.Helper()
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, name := range names {
		if !strings.Contains(name, part) || strings.HasPrefix(name, "marker") {
			continue
		}
		found = true
		if err := f(fs.PathJoin("data", name)); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("no %s among %v", part, names)
	}
}

// flip changes one byte of the files whose names contain part.
func flip(t *testing.T, fs vfs.FS, part string, at int64) {
	t.Helper()
	each(t, fs, part, func(path string) error {
		f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		var b [1]byte
		if n, _ := f.ReadAt(b[:], at); n == 1 {
			b[0] ^= 0x10
			_, err = f.WriteAt(b[:], at)
		}
		return errors.Join(err, f.Close())
	})
}

// damage flips bytes all over the files whose names contain part.
func damage(t *testing.T, fs vfs.FS, part string) vfs.FS {
	t.Helper()
	each(t, fs, part, func(path string) error {
		info, err := fs.Stat(path)
		if err != nil {
			return err
		}
		f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		for at := int64(0); err == nil && at < info.Size()-100; at += 97 {
			_, err = f.WriteAt([]byte{0xa5, 0xa5, 0xa5}, at)
		}
		return errors.Join(err, f.Close())
	})
	return fs
}

// TestDamagedValue: a value that is not what was written is an error, never an answer.
func TestDamagedValue(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	fs := vfs.NewMem()
	e := openAt(t, Options{Dir: "data", FS: fs})
	a, b := mustPut(t, e, "a", "one", 0), mustPut(t, e, "b", "two", 0)
	mustClose(t, e)
	edit(t, fs, func(db *pebble.DB) error {
		v, closer, err := db.Get(logKey(b))
		if err != nil {
			return err
		}
		defer closer.Close()
		return errors.Join(db.Set(logKey(a), v, pebble.Sync))
	})
	e = openAt(t, Options{Dir: "data", FS: fs})
	defer mustClose(t, e)
	if _, err := e.Range(context.Background(), storage.RangeOptions{Prefix: "a", Exact: true}); !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "the data folder data is damaged") {
		t.Errorf("error %v", err)
	}
	if res, err := e.Range(context.Background(), storage.RangeOptions{Prefix: "b", Exact: true}); err != nil || string(res.KVs[0].Value) != "two" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCompactionThatCannotRead checks that a compaction that cannot open a table, because no file
// descriptor is left, is retried a few times per second and logged once.
func TestCompactionThatCannotRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		var armed atomic.Bool
		var tries atomic.Int64
		e := openAt(t, Options{
			Dir: "data", HistoryAge: -1, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
			FS: inject(vfs.NewMem(), func(op errorfs.Op) error {
				if armed.Load() && op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, ".sst") {
					tries.Add(1)
					return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EMFILE}
				}
				return nil
			}),
		})
		defer mustClose(t, e)
		armed.Store(true)
		for i := range 12 {
			mustPut(t, e, fmt.Sprintf("/registry/pods/p%d", i), "value", 0)
			if err := e.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		const passed = 90 * time.Second
		time.Sleep(passed)
		if n := tries.Load(); n < 10 || n > 10*int64(passed/retryEvery) {
			t.Errorf("%d tries in %v", n, passed)
		}
		armed.Store(false)
		synctest.Wait()
		if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "too many open files") {
			t.Errorf("told:\n%s", got)
		}
	})
}
