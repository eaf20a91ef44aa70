package registry_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/registry/registrytest"
	engine "github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

func TestStorage(t *testing.T) {
	registrytest.Run(t, func(t *testing.T) engine.Engine {
		e, err := embedded.Open(embedded.Options{Dir: "data", FS: vfs.NewMem()})
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
