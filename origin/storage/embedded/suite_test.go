package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/storagetest"
)

// TestSuite runs the suite of all engines, on an in-memory disk that loses unsynced data and on the
// disk of this machine.
func TestSuite(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storagetest.Run(t, func(t *testing.T) storagetest.Store {
			fs := vfs.NewCrashableMem()
			var isFull atomic.Bool
			open := func() *Engine {
				return openAt(t, Options{Dir: "data", FS: hook(fs, func(op errorfs.Op) error {
					if isFull.Load() && !isSync(op) {
						return syscall.ENOSPC
					}
					return nil
				})})
			}
			first := open()
			return storagetest.Store{
				Engine: first,
				Fault:  func() { fillDisk(t, first, &isFull) },
				Reopen: func(e storage.Engine) storage.Engine {
					before := fs
					fs = before.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
					if err := e.Close(); err != nil { // on what is not looked at any more
						t.Error(err)
					}
					return open()
				},
			}
		})
	})
	t.Run("disk", func(t *testing.T) {
		storagetest.Run(t, func(t *testing.T) storagetest.Store {
			dir := t.TempDir()
			open := func() storage.Engine { return openAt(t, Options{Dir: dir}) }
			return storagetest.Store{
				Engine: open(),
				Reopen: func(e storage.Engine) storage.Engine {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					return open()
				},
			}
		})
	})
}

// fillDisk returns when the engine has noticed that its disk is full, and that it is not any more.
func fillDisk(t *testing.T, e *Engine, isFull *atomic.Bool) {
	isFull.Store(true)
	// Some may still fit, or be refused and happen later.
	for n := 0; ; n++ {
		key := fmt.Sprint("/probe/", time.Now().UnixNano(), n)
		if _, err := e.Put(context.Background(), key, nil, storage.Precondition{}, 0); errors.Is(err, storage.ErrUnavailable) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	isFull.Store(false)
	for e.Err() != nil {
		time.Sleep(time.Millisecond)
	}
}
