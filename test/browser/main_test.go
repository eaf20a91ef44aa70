package browser

import (
	"context"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// The testbed of all tests and its cluster. TestMain sets them and they never change.
var (
	bed  *testbed.Testbed
	kube *realkube.Cluster
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Program: true, Prepare: func(_ context.Context, b *testbed.Testbed) error {
		bed, kube = b, b.Kube
		return nil
	}})
}

// startGateway starts a gateway that ends with the test.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{ExtraArgs: args})
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
