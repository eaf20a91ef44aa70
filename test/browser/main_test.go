package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startTime covers building etcd, kube-apiserver, kubectl, the gateway and what drives the browser, the first time.
const startTime = 25 * time.Minute

// kube is the cluster of all tests. TestMain starts it and nobody replaces it.
var kube *realkube.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var err error
	if kube, err = realkube.Start(ctx, realkube.Options{}); err != nil {
		return 0, err
	}
	defer func() { _ = kube.Close() }()
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
	must(t, err)
	t.Cleanup(func() {
		panicked := g.Panicked()
		g.Close()
		if panicked {
			t.Error("the gateway panicked")
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimRight(g.Log(), "\n"), "\n")
			t.Logf("end of the gateway's log:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return g
}

// must fails the test when a step did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
