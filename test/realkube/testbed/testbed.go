// Package testbed is the TestMain of packages whose tests have a cluster and a standalone in common.
package testbed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startTime bounds the start of a testbed; it covers building everything, the first time.
const startTime = 25 * time.Minute

// A Testbed is what the tests of a package have in common: a cluster, and a standalone that knows its users, with a store of
// its own.
type Testbed struct {
	Dir    string // of the tests' own
	Kube   *realkube.Cluster
	Origin *realkube.Standalone
}

// Run is the TestMain of a package: it starts a testbed, has prepare take it, runs the tests, stops everything and
// exits. The program is KUBEWEIR_BINARY of the environment, if that is set.
func Run(m *testing.M, prepare func(context.Context, *Testbed) error) {
	flag.Parse()
	code, err := run(m, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, prepare func(context.Context, *Testbed) error) (code int, err error) {
	klog.SetLogger(logr.Discard()) // failing is what some tests make client-go do
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	b := &Testbed{}
	if b.Dir, err = os.MkdirTemp("", "kubeweir-testbed-"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(b.Dir) }()
	if b.Kube, err = realkube.Start(ctx, realkube.Options{Dir: filepath.Join(b.Dir, "kube")}); err != nil {
		return 0, err
	}
	defer func() { _ = b.Kube.Close() }()
	origin := filepath.Join(b.Dir, "origin")
	if err := os.Mkdir(origin, 0o700); err != nil {
		return 0, err
	}
	b.Origin, err = realkube.StartStandalone(ctx, realkube.StandaloneOptions{Path: os.Getenv("KUBEWEIR_BINARY"), Dir: origin, Cluster: b.Kube})
	if err != nil {
		return 0, err
	}
	defer b.Origin.Close()
	if err := prepare(ctx, b); err != nil {
		return 0, err
	}
	if code = m.Run(); code != 0 {
		log := b.Origin.Log()
		fmt.Fprintf(os.Stderr, "the end of kubeweir's log:\n%s\n", log[max(0, len(log)-8000):])
	}
	return code, nil
}
