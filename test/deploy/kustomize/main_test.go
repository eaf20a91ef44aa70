// Package kustomize builds the folders of deploy/kustomize, validates the result with API servers,
// and runs the containers' programs.
package kustomize

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const waitTimeout = time.Minute // bounds each wait

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// Set by TestMain and never changed.
var (
	kube   *realkube.Cluster
	origin *realkube.Standalone
	work   string // a folder of the tests' own
	root   string // of the repository
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Standalone: true, Prepare: func(_ context.Context, b *testbed.Testbed) (err error) {
		kube, origin, work = b.Kube, b.Origin, b.Dir
		root, err = realkube.RepoRoot()
		return err
	}})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls a condition outside of this process.
func eventually(ctx context.Context, t *testing.T, holds func() error) {
	t.Helper()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
