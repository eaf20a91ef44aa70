package layout

import (
	"testing"

	"github.com/kubeweir/kubeweir/origin/registry/registrytest"
	engine "github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestStorage runs apiserver's tests of storage.Interface against the origin's implementation, each
// on an etcd of its own.
func TestStorage(t *testing.T) {
	registrytest.Run(t, func(t *testing.T) engine.Engine {
		cluster, err := realkube.Start(t.Context(), realkube.Options{EtcdOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.Close(); err != nil {
				t.Error(err)
			}
		})
		e, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{cluster.EtcdURL()}, CompactionInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	})
}
