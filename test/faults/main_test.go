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

// bed is the testbed of all tests. TestMain starts it, and no test replaces it.
var bed *testbed.Testbed

// unseenUsers is the number of users that the gateway has not seen yet. Each sends one request.
const unseenUsers = 4000

// kubeOptions returns the options of every cluster in this package.
func kubeOptions() realkube.Options {
	opts := realkube.Options{ExtraArgs: []string{"--etcd-compaction-interval=0"}}
	for i := range unseenUsers {
		opts.Users = append(opts.Users, realkube.User{Name: unseenUser(i), UID: unseenUser(i), Groups: []string{"system:masters"}})
	}
	return opts
}

func unseenUser(i int) string { return fmt.Sprintf("newcomer-%d", i) }

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Kube: kubeOptions(), Program: true, Prepare: func(_ context.Context, b *testbed.Testbed) error {
		bed = b
		// The tests mostly wait for faults to end, so all of them can run in parallel.
		return flag.Set("test.parallel", "16")
	}})
}

// startCluster starts a cluster of the test's own, for tests that stop kube-apiserver or etcd.
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

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// consistencyFile writes a configuration that selects session consistency for one user agent and
// strict consistency for all others. It returns the path.
func consistencyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeweir.yaml")
	must(t, os.WriteFile(path, []byte("rules:\n- userAgents: ["+sessionAgent+"]\n  consistency: session\n"), 0o600))
	return path
}

const sessionAgent = "faults-session"
