// Package charts renders the Helm chart (deploy/charts/kubeweir) with Helm 3 and Helm 4, compares what comes out with golden
// files, has API servers judge it, and runs what it would run.
package charts

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

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// What TestMain starts and nobody replaces.
var (
	helms  map[string]string // paths of helm by name
	kube   *realkube.Cluster
	origin *realkube.Standalone
	work   string // a folder of the tests' own
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if work, err = os.MkdirTemp("", "kubeweir-charts-"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	helms = map[string]string{}
	for name, program := range map[string]string{"helm3": "helm.sh/helm/v3/cmd/helm", "helm4": "helm.sh/helm/v4/cmd/helm"} {
		if helms[name], err = realkube.Tool(ctx, name, program); err != nil {
			return 0, err
		}
	}
	if kube, err = realkube.Start(ctx, realkube.Options{Dir: filepath.Join(work, "kube")}); err != nil {
		return 0, err
	}
	defer func() { _ = kube.Close() }()
	if err := os.Mkdir(filepath.Join(work, "origin"), 0o700); err != nil {
		return 0, err
	}
	origin, err = realkube.StartStandalone(ctx, realkube.StandaloneOptions{
		Path: os.Getenv("KUBEWEIR_BINARY"), Dir: filepath.Join(work, "origin"), Cluster: kube,
	})
	if err != nil {
		return 0, err
	}
	defer origin.Close()
	return m.Run(), nil
}
