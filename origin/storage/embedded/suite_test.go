package embedded

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/storagetest"
)

// The suite of all engines, on a disk that forgets what was not synced, and on the
// machine's.
func TestSuite(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storagetest.Run(t, func(t *testing.T) storagetest.Store {
			fs := vfs.NewCrashableMem()
			open := func() storage.Engine { return openAt(t, Options{Dir: "data", FS: fs}) }
			return storagetest.Store{
				Engine: open(),
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
