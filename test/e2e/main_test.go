package e2e

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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	// startTime covers building etcd, kube-apiserver, kubectl and the gateway, the first time.
	startTime = 25 * time.Minute
	// pollPeriod is how often a condition outside this process is looked at.
	pollPeriod = 20 * time.Millisecond
)

// kube is the cluster of all tests. TestMain starts it and nobody replaces it.
var kube *realkube.Cluster

// auditPolicy makes kube-apiserver tell who wrote in namespaces of TestIdentities, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  namespaces: ["` + identitiesNamespace + `"]
- level: None
`

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	// client-go tells every failed attempt, and failing is what these tests make it do.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "kubeweir-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return 0, err
	}
	kube, err = realkube.Start(ctx, realkube.Options{
		Dir: filepath.Join(dir, "kube"),
		ExtraArgs: []string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, "kube", "audit.log"),
			// History is dropped when a test says so.
			"--etcd-compaction-interval=0",
			"--kubelet-preferred-address-types=InternalIP",
		},
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = kube.Close() }()
	if err := createWidgetDefinition(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// startGateway starts a gateway that ends with the test. What it printed is shown when the test fails.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	g, err := realkube.StartGatewayWith(ctx, kube, realkube.GatewayOptions{
		Path: os.Getenv("KUBEWEIR_BINARY"), ExtraArgs: args,
	})
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
			t.Logf("end of the gateway's log:\n%s", tail(g.Log(), 60))
		}
	})
	return g
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// deadline bounds a test, so that one that hangs fails by itself and says where.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until check returns nil. The last error fails the test when that takes longer than within.
func eventually(ctx context.Context, t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	if err := poll(ctx, within, check); err != nil {
		t.Fatal(err)
	}
}

// poll calls check until it returns nil, and gives its last error when that takes longer than within.
func poll(ctx context.Context, within time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, err)
		}
	}
}

// must fails the test when a step did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// http1 makes a client configuration speak HTTP/1.1 only.
func http1(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}
