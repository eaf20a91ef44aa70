package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// A client changes a few keys until the engine is closed or fails.
type client struct {
	name   string
	random *rand.Rand
	record *record
	known  map[string]uint64
	size   int // of values
	n      int
}

func newClient(name string, seed uint64, r *record, size int) *client {
	return &client{name: name, random: rand.New(rand.NewPCG(seed, 1)), record: r, known: map[string]uint64{}, size: size}
}

// step makes one change; conflicts are learnt from.
func (c *client) step(e *Engine) error {
	key := fmt.Sprintf("/registry/%c/k%d", 'a'+c.random.IntN(3), c.random.IntN(6))
	c.n++
	var rev uint64
	var err error
	if c.known[key] != 0 && c.random.IntN(4) == 0 {
		rev, err = c.record.delete(e, key, c.known[key])
		if err == nil {
			rev = 0
		}
	} else {
		value := fmt.Sprintf("%s-%d-%s", c.name, c.n, strings.Repeat("x", c.random.IntN(c.size)))
		rev, err = c.record.put(e, key, value, c.known[key])
	}
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		rev, err = 0, nil
		if conflict.Current != nil {
			rev = conflict.Current.Revision
		}
	}
	c.known[key] = rev
	return err
}

// TestCrash lets the machine lose power under load, several times in a row: all that was
// synced and some of the rest is there afterwards.
func TestCrash(t *testing.T) {
	for seed := range uint64(soak.Cases(4, 100)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 2))
			fs := vfs.NewCrashableMem()
			r := newRecord()
			for round := range 5 {
				e := openAt(t, Options{Dir: "data", FS: fs, HistoryAge: -1})
				mustVerify(t, e)
				if err := r.check(e, r.copy()); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				fs = crashUnderLoad(t, e, fs, r, random, fmt.Sprint(seed, "-", round))
			}
		})
	}
}

// crashUnderLoad runs clients and a compactor, and returns the disk as it is after a crash at a random
// moment. r then holds what was acknowledged before that.
func crashUnderLoad(t *testing.T, e *Engine, fs *vfs.MemFS, r *record, random *rand.Rand, name string) *vfs.MemFS {
	var wg sync.WaitGroup
	var done atomic.Int64
	enough := int64(20 + random.IntN(400))
	size := []int{50, 3000, 40000}[random.IntN(3)]
	for i := range 8 {
		c := newClient(fmt.Sprintf("%s-%d", name, i), random.Uint64(), r, size)
		wg.Go(func() {
			for {
				if err := c.step(e); err != nil {
					if !errors.Is(err, storage.ErrClosed) {
						t.Error(err)
					}
					return
				}
				if n := done.Add(1); n%50 == 0 {
					rev, _ := e.CurrentRevision(context.Background())
					if err := e.Compact(context.Background(), rev-rev/10); err != nil && !errors.Is(err, storage.ErrClosed) {
						t.Error(err)
					}
				}
			}
		})
	}
	for done.Load() < enough {
		if t.Failed() {
			break
		}
	}
	acked := r.copy()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 30, 100}[random.IntN(3)], RNG: rand.New(rand.NewPCG(random.Uint64(), 3))})
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	r.mu.Lock()
	r.acked, r.last = acked, 0
	r.mu.Unlock()
	return crashed
}

// hook calls f before each operation that changes a file system.
func hook(fs vfs.FS, f func(op errorfs.Op) error) vfs.FS {
	return inject(fs, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpFilePreallocate {
			return nil
		}
		return f(op)
	})
}

// An injected file system is an errorfs.FS whose reused files are looked at as well.
type injected struct {
	*errorfs.FS
	injector errorfs.Injector
}

func inject(fs vfs.FS, f errorfs.InjectorFunc) vfs.FS { return injected{errorfs.Wrap(fs, f), f} }

func (fs injected) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(f, fs.injector), nil
}

// script is a fixed run of changes that fills several memtables, with compactions in between.
func script(e *Engine, r *record, changes int) error {
	c := newClient("script", 7, r, 24000)
	for i := range changes {
		if err := c.step(e); err != nil {
			return err
		}
		if i%25 == 24 {
			rev, err := e.CurrentRevision(context.Background())
			if err == nil {
				err = e.Compact(context.Background(), rev-5)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TestCrashAnywhere lets the machine lose power before every single operation on its disk.
func TestCrashAnywhere(t *testing.T) {
	mem := vfs.NewCrashableMem()
	r := newRecord()
	random := rand.New(rand.NewPCG(11, 4))
	type crash struct {
		fs    *vfs.MemFS
		acked map[uint64]logged
		op    string
	}
	var mu sync.Mutex
	var crashes []crash
	fs := hook(mem, func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		acked := r.copy() // before the clone: what is told after it may be in it or not
		clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50}[random.IntN(2)], RNG: random})
		crashes = append(crashes, crash{clone, acked, fmt.Sprint(op)})
		return nil
	})
	e := openAt(t, Options{Dir: "data", FS: fs, HistoryAge: -1})
	if err := script(e, r, 120); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	step := soak.Cases(5, 1)
	for i := 0; i < len(crashes); i += step {
		c := crashes[i]
		after, err := Open(Options{Dir: "data", FS: c.fs, HistoryAge: -1})
		if err != nil {
			t.Fatalf("crash %d, before %s: %v", i, c.op, err)
		}
		if err := errors.Join(verify(after), r.check(after, c.acked)); err != nil {
			t.Fatalf("crash %d, before %s: %v", i, c.op, err)
		}
		mustPut(t, after, "/registry/a/after", "v", 0)
		mustClose(t, after)
		crashes[i] = crash{}
	}
	t.Logf("%d crashes", len(crashes))
}
