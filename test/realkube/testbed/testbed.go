// Package testbed provides the TestMain of packages whose tests share a cluster, and starts servers
// that those tests often need.
package testbed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// logLines is how many lines of a kubeweir's log are shown on failure.
const logLines = 60

// Options say what the tests of a package share. The zero value means a cluster.
type Options struct {
	// Kube configures the cluster. Its folder is inside the testbed's folder.
	Kube realkube.Options
	// Program builds kubeweir before the tests run, so that the build does not count against their
	// deadlines.
	Program bool
	// Standalone starts a standalone kubeweir with the cluster's users and a store of its own.
	Standalone bool
	// Prepare, if set, creates in the testbed what all tests need, before they run.
	Prepare func(context.Context, *Testbed) error
}

// A Testbed is what the tests of a package share.
type Testbed struct {
	Dir     string // for the tests' files
	Kube    *realkube.Cluster
	Program string               // path of kubeweir, if Options.Program is set
	Origin  *realkube.Standalone // set if Options.Standalone is set
}

// Run implements the TestMain of a package: it starts a testbed, runs the tests, stops everything
// and exits.
func Run(m *testing.M, opts Options) {
	flag.Parse()
	code, err := run(m, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, opts Options) (code int, err error) {
	klog.SetLogger(logr.Discard()) // some tests make client-go fail on purpose
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, realkube.StartTime)
	defer cancel()
	b := &Testbed{}
	defer b.close()
	if err := b.start(ctx, opts); err != nil {
		return 0, err
	}
	if opts.Prepare != nil {
		if err := opts.Prepare(ctx, b); err != nil {
			return 0, err
		}
	}
	if code = m.Run(); code != 0 && b.Origin != nil {
		fmt.Fprintf(os.Stderr, "the end of the standalone's log:\n%s\n", lastLines(b.Origin.Log()))
	}
	return code, nil
}

func (b *Testbed) start(ctx context.Context, opts Options) (err error) {
	if b.Dir, err = os.MkdirTemp("", "kubeweir-testbed-"); err != nil {
		return err
	}
	if opts.Program || opts.Standalone {
		if b.Program, err = realkube.Kubeweir(ctx); err != nil {
			return err
		}
	}
	opts.Kube.Dir = filepath.Join(b.Dir, "kube")
	if b.Kube, err = realkube.Start(ctx, opts.Kube); err != nil || !opts.Standalone {
		return err
	}
	dir := filepath.Join(b.Dir, "origin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b.Origin, err = realkube.StartStandalone(ctx, realkube.StandaloneOptions{Path: b.Program, Dir: dir, Cluster: b.Kube})
	return err
}

func (b *Testbed) close() {
	if b.Origin != nil {
		b.Origin.Close()
	}
	if b.Kube != nil {
		_ = b.Kube.Close()
	}
	_ = os.RemoveAll(b.Dir)
}

// StartGateway starts a gateway in front of the cluster that ends with the test. The test fails if
// the gateway panics. The end of its log is shown if the test fails.
func (b *Testbed) StartGateway(t *testing.T, opts realkube.GatewayOptions) *realkube.Gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	if opts.Path == "" {
		opts.Path = b.Program
	}
	g, err := realkube.StartGatewayWith(ctx, b.Kube, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		panicked := g.Panicked()
		g.Close()
		if panicked {
			t.Error("the gateway panicked")
		}
		if t.Failed() {
			t.Logf("the end of the gateway's log:\n%s", lastLines(g.Log()))
		}
	})
	return g
}

func lastLines(s string) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-logLines):], "\n")
}
