package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

var long = flag.Bool("faults.long", false, "try every fault, for longer, and write docs/faults.md")

// The testbed of all tests, which TestMain starts and nobody replaces.
var bed *testbed.Testbed

// newcomers is how many users there are that the gateway has not seen; each asks once.
const newcomers = 4000

// kubeOptions are those of every cluster here.
func kubeOptions() realkube.Options {
	opts := realkube.Options{ExtraArgs: []string{"--etcd-compaction-interval=0"}}
	for i := range newcomers {
		opts.Users = append(opts.Users, realkube.User{Name: newcomer(i), UID: newcomer(i), Groups: []string{"system:masters"}})
	}
	return opts
}

func newcomer(i int) string { return fmt.Sprintf("newcomer-%d", i) }

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Kube: kubeOptions(), Program: true, Prepare: func(_ context.Context, b *testbed.Testbed) error {
		bed = b
		// Faults are waited for most of the time: all of them can happen at once.
		return flag.Set("test.parallel", "16")
	}})
}

// startCluster starts a cluster that ends with the test, for those who stop it.
func startCluster(t *testing.T) *realkube.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	opts := kubeOptions()
	opts.Dir = filepath.Join(t.TempDir(), "kube")
	kube, err := realkube.Start(ctx, opts)
	must(t, err)
	t.Cleanup(func() { _ = kube.Close() })
	return kube
}

// must fails the test when a step did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// consistencyFile is a configuration in which clients of one user agent read in session mode, and all others strictly.
func consistencyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeweir.yaml")
	must(t, os.WriteFile(path, []byte("rules:\n- userAgents: ["+sessionAgent+"]\n  consistency: session\n"), 0o600))
	return path
}

const sessionAgent = "faults-session"
