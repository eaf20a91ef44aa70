package clients

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

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	// startTime covers building etcd, kube-apiserver, kubectl and the gateway, the first time.
	startTime = 25 * time.Minute
	// testTime bounds a test, so that one that hangs fails by itself and says where.
	testTime = time.Minute

	// maps is where the objects are of which a list is larger than any client's window.
	maps    = "/api/v1/namespaces/default/configmaps"
	objects = 1200
	size    = 8 << 10
)

// What TestMain makes and nobody replaces.
var (
	kube   *realkube.Cluster
	direct kubernetes.Interface // a client of kube-apiserver itself
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
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
	if direct, err = kubernetes.NewForConfig(kube.AdminConfig()); err != nil {
		return 0, err
	}
	if err := fill(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// fill creates the objects.
func fill(ctx context.Context) error {
	makers, ctx := errgroup.WithContext(ctx)
	makers.SetLimit(16)
	for i := range objects {
		makers.Go(func() error {
			_, err := direct.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%04d", i)},
				Data:       map[string]string{"text": strings.Repeat("0123456789abcdef", size/16)},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return makers.Wait()
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

// deadline bounds a test.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test when a step did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
