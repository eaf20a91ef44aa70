package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const rulesNamespace = "rules"

// rulesConfig caches decisions for so long that only a change of an RBAC object invalidates them.
const rulesConfig = `rules:
- users: [jane]
  profile: dashboard
- users: [alice]
  readOnly: true
authorization:
  allowedTTL: 1h
  deniedTTL: 1h
`

// TestRules checks that the rule of a dashboard serves self reviews from memory until a permission
// changes, and that the rule readOnly rejects all writes of a user with all permissions.
func TestRules(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, rulesNamespace)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(rulesConfig), 0o600))
	g := startGateway(t, "--config="+file)
	t.Run("self-reviews", func(t *testing.T) { testSelfReviews(ctx, t, g) })
	t.Run("read only", func(t *testing.T) { testReadOnly(ctx, t, g) })
}

// mayI returns a self review: whether the client may do something with ConfigMaps.
func mayI(namespace, verb string) request {
	return request{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", typ: typeJSON, body: fmt.Sprintf(
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"namespace":%q,"verb":%q,"resource":"configmaps"}}}`, namespace, verb)}
}

func testSelfReviews(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	jane := through(t, g, as(realkube.Jane))
	r := newRights(t)
	say := func(want string) func() error {
		return func() error {
			a, err := jane.send(ctx, mayI(rulesNamespace, "list"))
			if err == nil && (a.status != http.StatusCreated || !strings.Contains(a.body, want)) {
				err = fmt.Errorf("%v, want %s", a, want)
			}
			return err
		}
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	page := func() {
		for _, verb := range verbs {
			a, err := jane.send(ctx, mayI(rulesNamespace, verb))
			must(t, err)
			if a.status != http.StatusCreated {
				t.Fatal(a)
			}
		}
	}
	requested := func() float64 {
		m, err := g.Metrics(ctx)
		must(t, err)
		return m.Sum("kubeweir_requests_total", map[string]string{"verb": "create", "group": "authorization.k8s.io", "source": "forwarded"})
	}
	page()
	before := requested()
	if before == 0 {
		t.Error("no review was forwarded")
	}
	eventually(ctx, t, waitTimeout, func() error { // permissions of other tests may still be changing
		from := requested()
		page()
		if n := requested() - from; n > 0 {
			return fmt.Errorf("a repeated page forwarded %v reviews", n)
		}
		return nil
	})
	must(t, say(`"allowed":false`)())
	r.inNamespace(ctx, rulesNamespace, "told", realkube.Jane, readers())
	eventually(ctx, t, revocationTime, say(`"allowed":true`))
	r.revoke(ctx, rulesNamespace, "told")
	eventually(ctx, t, revocationTime, say(`"allowed":false`))
}

func testReadOnly(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	r := newRights(t)
	r.everywhere(ctx, "e2e-rules", realkube.Alice, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	alice, unbound := through(t, g, as(realkube.Alice)), direct(t, as(realkube.Alice))
	awaitStatus(ctx, t, unbound, configMapsIn(rulesNamespace), http.StatusOK)
	awaitStatus(ctx, t, alice, configMapsIn(rulesNamespace)+"?resourceVersion=0", http.StatusOK)
	create := request{method: http.MethodPost, path: configMapsIn(rulesNamespace) + "?dryRun=All", typ: typeJSON, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`}
	allowed, err := unbound.send(ctx, create)
	must(t, err)
	if allowed.status != http.StatusCreated {
		t.Fatalf("the user cannot write even without the rule: %v", allowed)
	}
	impersonated := alice.with("Impersonate-User", realkube.Admin).with("Impersonate-Group", "system:masters")
	for _, c := range []*client{alice, impersonated} {
		for _, q := range []request{
			create,
			{method: http.MethodDelete, path: configMapsIn(rulesNamespace) + "?dryRun=All"},
			{method: http.MethodPost, path: "/api/v1/namespaces/" + rulesNamespace + "/serviceaccounts/default/token", typ: typeJSON, body: `{}`},
			{path: "/api/v1/namespaces/" + rulesNamespace + "/pods/a/exec?command=sh"},
			{path: "/api/v1/nodes/a/proxy/pods"},
		} {
			a, err := c.send(ctx, q)
			must(t, err)
			if a.status != http.StatusForbidden || !strings.Contains(a.body, `"reason":"Forbidden"`) || !strings.Contains(a.body, "restricts this client to reads") {
				t.Errorf("%v: %v", q, a)
			}
		}
		a, err := c.send(ctx, mayI(rulesNamespace, "create"))
		must(t, err)
		if a.status != http.StatusCreated || !strings.Contains(a.body, `"allowed":true`) {
			t.Errorf("self review: %v", a)
		}
	}
}
