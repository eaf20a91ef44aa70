// Package charts renders the Helm chart (deploy/charts/kubeweir) with Helm 3 and Helm 4, compares
// the result with golden files, validates it with API servers, and runs the rendered containers.
package charts

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const waitTimeout = time.Minute // bounds each wait

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// Set by TestMain and never changed.
var (
	helms  map[string]string // paths of helm by name
	kube   *realkube.Cluster
	origin *realkube.Standalone
	work   string // a folder of the tests' own
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Standalone: true, Prepare: func(ctx context.Context, b *testbed.Testbed) (err error) {
		kube, origin, work, helms = b.Kube, b.Origin, b.Dir, map[string]string{}
		for _, name := range []string{"helm3", "helm4"} {
			if helms[name], err = realkube.Tool(ctx, name, realkube.Tools[name]); err != nil {
				return err
			}
		}
		return nil
	}})
}
