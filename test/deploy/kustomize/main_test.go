// Package kustomize builds the folders of deploy/kustomize, has API servers judge what comes out, and runs what their
// containers would run.
package kustomize

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

const (
	startTime = 25 * time.Minute // covers building everything, the first time
	patience  = time.Minute      // for one thing
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// What TestMain starts and nobody replaces.
var (
	kube   *realkube.Cluster
	origin *realkube.Standalone
	work   string // a folder of the tests' own
	root   string // of the repository
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kustomize:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	klog.SetLogger(logr.Discard()) // failing is what some tests make client-go do
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if root, err = realkube.RepoRoot(); err != nil {
		return 0, err
	}
	if work, err = os.MkdirTemp("", "kubeweir-kustomize-"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if kube, err = realkube.Start(ctx, realkube.Options{Dir: filepath.Join(work, "kube")}); err != nil {
		return 0, err
	}
	defer func() { _ = kube.Close() }()
	if err := os.Mkdir(filepath.Join(work, "origin"), 0o700); err != nil {
		return 0, err
	}
	if origin, err = realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: filepath.Join(work, "origin"), Cluster: kube}); err != nil {
		return 0, err
	}
	defer origin.Close()
	return m.Run(), nil
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
