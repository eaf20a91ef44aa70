package clients

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	// testTime bounds a test, so that a test that hangs fails by itself and says where.
	testTime = time.Minute

	// maps is the path of objects whose list is larger than any client's window.
	maps    = "/api/v1/namespaces/default/configmaps"
	objects = 1200
	size    = 8 << 10
)

// Set by TestMain and never changed.
var (
	bed    *testbed.Testbed
	kube   *realkube.Cluster
	direct kubernetes.Interface // bypasses the gateway
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Program: true, Prepare: func(ctx context.Context, b *testbed.Testbed) (err error) {
		bed, kube = b, b.Kube
		if direct, err = kubernetes.NewForConfig(kube.AdminConfig()); err != nil {
			return err
		}
		return fill(ctx)
	}})
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

// startGateway starts a gateway that ends with the test.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{ExtraArgs: args})
}

// deadline bounds a test.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
