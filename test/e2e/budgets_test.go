package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const budgetsNamespace = "budgets"

// TestBudgets checks that a client over its budget gets stale data from the cache, with its age, or
// a 429 with Retry-After, and is served after a retry. Other clients are not affected.
func TestBudgets(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, budgetsNamespace)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(`rules:
- userAgents: ["stale*"]
  overBudget: cached
- userAgents: ["stale*", "spent*"]
  upstreamRequestsPerSecond: 1
- userAgents: ["heavy*"]
  upstreamBytesPerSecond: 1Ki
- userAgents: ["gone*"]
  block: true
`), 0o600))
	g := startGateway(t, "--config="+file)
	admin := through(t, g, as(realkube.Admin))
	const path = "/api/v1/namespaces/" + budgetsNamespace + "/configmaps"
	const fromCache = path + "?resourceVersion=0"
	create := func(c *client, name string) response {
		a, err := c.send(ctx, request{method: http.MethodPost, path: path, typ: typeJSON, body: fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)})
		must(t, err)
		return a
	}
	get := func(c *client, path string, want int) response {
		t.Helper()
		a := c.get(ctx, t, path, typeJSON)
		if a.status != want {
			t.Fatalf("%s: %v, want %d", path, a, want)
		}
		return a
	}
	get(admin, fromCache, 200)
	over := func(c *client) {
		t.Helper()
		c.get(ctx, t, fromCache, typeJSON)
		for range 30 { // a burst of 10, then one per second
			if a := c.get(ctx, t, "/version", typeJSON); a.status == http.StatusTooManyRequests {
				return
			}
		}
		t.Fatal("30 requests did not exceed a budget of one per second")
	}
	rejected := func(a response) {
		t.Helper()
		if retry, err := strconv.Atoi(a.header.Get("Retry-After")); a.status != http.StatusTooManyRequests || err != nil || retry < 1 || retry > 60 {
			t.Errorf("%v with Retry-After %q", a, a.header.Get("Retry-After"))
		}
	}

	overIs := func(c *client, do func() response) { // a second later the budget allows a request again, so retry
		t.Helper()
		eventually(ctx, t, waitTimeout, func() error {
			over(c)
			a := do()
			if a.status != http.StatusTooManyRequests {
				return fmt.Errorf("%v", a)
			}
			rejected(a)
			return nil
		})
	}
	spent := admin.with("User-Agent", "spent/1")
	overIs(spent, func() response { return create(spent, "over") })
	overIs(spent, func() response { return spent.get(ctx, t, path, typeJSON) })
	eventually(ctx, t, waitTimeout, func() error { // free, except for an access review after a change of permissions
		if a := spent.get(ctx, t, fromCache, typeJSON); a.status != http.StatusOK || a.header.Get("Age") != "" {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	eventually(ctx, t, waitTimeout, func() error { // as a client that retries
		if a := create(spent, "spent"); a.status != http.StatusCreated {
			return fmt.Errorf("%v", a)
		}
		return nil
	})

	stale := admin.with("User-Agent", "stale/1")
	over(stale)
	eventually(ctx, t, waitTimeout, func() error {
		over(stale)
		a := stale.get(ctx, t, path, typeJSON)
		if a.header.Get("Age") == "" || !strings.HasPrefix(a.header.Get("Warning"), "110 ") || !strings.Contains(a.body, `"ConfigMapList"`) {
			return fmt.Errorf("%v %v", a.header, a)
		}
		return nil
	})
	overIs(stale, func() response { return create(stale, "over") })

	heavy := admin.with("User-Agent", "heavy/1")
	get(heavy, fromCache, 200)
	get(heavy, "/openapi/v2", 200)
	rejected(heavy.get(ctx, t, "/version", typeJSON))

	rejected(admin.with("User-Agent", "gone/1").get(ctx, t, fromCache, typeJSON))
	get(admin.with("User-Agent", "another"), "/version", 200)
	checkBudgetMetrics(ctx, t, g)
}

func checkBudgetMetrics(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	for _, c := range []struct {
		name   string
		labels map[string]string
	}{
		{"kubeweir_budget_exceeded_total", map[string]string{"rule": "rules[1]", "outcome": "rejected"}},
		{"kubeweir_budget_exceeded_total", map[string]string{"rule": "rules[1]", "outcome": "cached"}},
		{"kubeweir_budget_exceeded_total", map[string]string{"rule": "rules[2]", "outcome": "rejected"}},
		{"kubeweir_rejections_total", map[string]string{"reason": "blocked"}},
		{"kubeweir_budget_users", nil},
		{"kubeweir_usage_bytes", nil},
	} {
		if m.Sum(c.name, c.labels) == 0 {
			t.Errorf("%s %v is 0", c.name, c.labels)
		}
	}
}
