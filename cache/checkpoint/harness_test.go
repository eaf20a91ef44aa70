package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// checkpointBench is a process that saves its collections to a disk and is restarted repeatedly.
type checkpointBench struct {
	t           *testing.T
	disk        *vfs.MemFS
	source      *cachetest.Source
	res         *source.Resource
	options     checkpoint.Options
	fs          func(vfs.FS) vfs.FS // nil: no wrapper
	limit       int64               // of bytes on disk, 0: none
	limits      cache.Limits
	wrap        func(source.Source) source.Source           // nil: no wrapper
	wrapStorage func(checkpoint.Storage) checkpoint.Storage // nil: no wrapper
	log         bytes.Buffer

	dir     *state.Dir
	manager *cache.Manager
}

func newCheckpointBench(t *testing.T) *checkpointBench {
	k := &checkpointBench{t: t, disk: vfs.NewCrashableMem(), res: cachetest.PodResource()}
	k.source = cachetest.New(k.res)
	for i := range 20 {
		k.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/pod-%02d", i), ""))
	}
	k.is("one")
	return k
}

// is sets the identity of the cluster.
func (k *checkpointBench) is(cluster string) {
	k.options.Cluster = func(context.Context) (string, error) { return cluster, nil }
}

func (k *checkpointBench) start() {
	k.t.Helper()
	log := slog.New(slog.NewTextHandler(&k.log, nil))
	var disk vfs.FS = k.disk
	if k.fs != nil {
		disk = k.fs(disk)
	}
	var err error
	if k.dir, err = state.Open(state.Options{Dir: "/state", FS: disk, MaxBytes: k.limit, Logger: log}); err != nil {
		k.t.Fatal(err)
	}
	k.options.Storage = k.dir
	if k.wrapStorage != nil {
		k.options.Storage = k.wrapStorage(k.dir)
	}
	var source source.Source = k.source
	if k.wrap != nil {
		source = k.wrap(source)
	}
	k.manager, err = cache.NewManager(cache.Options{Source: source, Limits: k.limits, Logger: log, Checkpoints: k.options})
	if err != nil {
		k.t.Fatal(err)
	}
}

// open opens the collection of pods.
func (k *checkpointBench) open() *cache.Collection {
	k.t.Helper()
	c := cachetest.Collection(k.t, k.manager, k.res, api.JSON)
	return c
}

func (k *checkpointBench) stop() {
	k.t.Helper()
	k.manager.Close()
	if err := k.dir.Close(); err != nil {
		k.t.Fatal(err)
	}
}

// kill ends the process abruptly; data that was written but not synced may be lost.
func (k *checkpointBench) kill(random *rand.Rand) {
	k.t.Helper()
	crashed := k.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	k.stop()
	k.disk = crashed
}

// same compares the collection with the source at the collection's version, byte for byte.
func (k *checkpointBench) same(c *cache.Collection) {
	k.t.Helper()
	if broken := c.CheckInvariants(); broken != "" {
		k.t.Error(broken)
	}
	v := c.Snapshot()
	var want, got []string
	for _, o := range k.source.ObjectsAt(cachetest.Pods, v.RV()) {
		want = append(want, string(cachetest.Encode(o, api.JSON)))
	}
	v.Ascend("", "", func(o *object.Object) bool {
		got = append(got, string(o.Raw))
		return true
	})
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		k.t.Errorf("at %d there are %d objects, want %d\n%.200q\n%.200q", v.RV(), len(got), len(want), got, want)
	}
}

// change makes one change of each kind.
func (k *checkpointBench) change() {
	k.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/new-%d", k.source.Revision()), ""))
	objects := k.source.Objects(cachetest.Pods)
	k.source.Update(cachetest.Pods, cachetest.Pod("default/"+objects[0].GetName(), "node"))
	k.source.Delete(cachetest.Pods, "default/"+objects[int(k.source.Revision())%len(objects)].GetName())
}

// calls returns the source's calls since the last time.
func (k *checkpointBench) calls() string { return strings.Join(k.source.Calls(), ", ") }

var errRedefinition = fmt.Errorf("redefined")
