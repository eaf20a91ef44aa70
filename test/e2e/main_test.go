package e2e

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// The testbed of all tests and its cluster. TestMain starts them, and no test replaces them.
var (
	bed  *testbed.Testbed
	kube *realkube.Cluster
)

// auditPolicy makes kube-apiserver log writes in the namespaces of TestIdentities, what auditRules say,
// and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  omitStages: [RequestReceived]
  namespaces: ["` + identitiesNamespace + `"]` + auditRules + `- level: None
`

func TestMain(m *testing.M) {
	kube := realkube.Options{
		AuditPolicy: auditPolicy,
		ExtraArgs: []string{
			"--etcd-compaction-interval=0", // tests compact the history explicitly
			"--kubelet-preferred-address-types=InternalIP",
		},
	}
	testbed.Run(m, testbed.Options{Kube: kube, Program: true, Prepare: prepare})
}

func prepare(ctx context.Context, b *testbed.Testbed) error {
	bed, kube = b, b.Kube
	return createWidgetDefinition(ctx)
}

// startGateway starts a gateway that ends with the test.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{ExtraArgs: args})
}

// waitTimeout is the timeout for what happens soon, on a machine of any speed. It is not an assertion.
const waitTimeout = 2 * time.Minute

// deadline returns a context that bounds the test, so that a test that hangs fails and says where.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until check returns nil. After within it fails the test with the last error.
func eventually(ctx context.Context, t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	if err := testbed.Poll(ctx, within, check); err != nil {
		t.Fatal(err)
	}
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// http1 restricts a client configuration to HTTP/1.1.
func http1(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}
