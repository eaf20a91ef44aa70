package etcd

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/origin/storage/storagetest"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// shared is the etcd of all tests that do not start their own. TestMain starts it.
var shared *realkube.Cluster

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Kube: realkube.Options{EtcdOnly: true}, Prepare: func(_ context.Context, b *testbed.Testbed) error {
		shared = b.Kube
		return nil
	}})
}

func openEngine(t testing.TB, c *realkube.Cluster) storage.Engine {
	t.Helper()
	// The time that etcd needs to restart depends on the machine.
	e, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{c.EtcdURL()}, CompactionInterval: -1, WatchTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// killAndStart kills etcd with SIGKILL and restarts it on its data.
func killAndStart(t *testing.T, c *realkube.Cluster) {
	t.Helper()
	if err := c.KillEtcd(); err != nil {
		t.Error(err)
	}
	if err := c.StartEtcd(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestSuite runs the test suite of all engines. To reopen, it kills and restarts etcd and opens a
// new engine.
func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.Store {
		return storagetest.Store{
			Engine: openEngine(t, shared),
			Reopen: func(e storage.Engine) storage.Engine {
				killAndStart(t, shared)
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				return openEngine(t, shared)
			},
			Beside: func() storage.Engine { return openEngine(t, shared) },
			Fault:  func() { killAndStart(t, shared) },
			// Half of etcd's election timeouts, rounded up.
			ShortestTTL: 2 * time.Second,
			NotLeaks:    []goleak.Option{goleak.IgnoreAnyFunction("github.com/kubeweir/kubeweir/test/realkube.(*process).run")},
		}
	})
}
