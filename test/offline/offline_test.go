package offline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// atOnce is far below the timeouts that requests must not wait for, and far above what a slow
// machine needs.
const atOnce = 5 * time.Second

// TestOfflineReadsWhileUpstreamIsDown checks offline reads while kube-apiserver is down, and the
// recovery.
func TestOfflineReadsWhileUpstreamIsDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const ns = "killed"
	newNamespace(ctx, t, ns, realkube.Jane, realkube.Alice, realkube.Bob, "carol")
	g := startGateway(t)
	const maps, held = "/api/v1/namespaces/" + ns + "/configmaps", "?resourceVersion=0"
	carolsCert, err := kube.IssueClientCert("carol")
	must(t, err)
	strangersCert, err := kube.IssueClientCert("stranger")
	must(t, err)
	root := newClient(t, g, kube.AdminToken(), nil)
	jane, alice, bob := newClient(t, g, kube.Token(realkube.Jane), nil), newClient(t, g, kube.Token(realkube.Alice), nil), newClient(t, g, kube.Token(realkube.Bob), nil)
	carol, stranger := newClient(t, g, "", &carolsCert), newClient(t, g, "", &strangersCert)

	// The gateway knows before the outage:
	//
	// - Jane: her permission, from a review.
	// - Alice: her token, but not this permission.
	// - Bob: his permission was revoked, and a response told him so.
	// - Carol: her permission was revoked, but she has sent no request since.
	// - The stranger: nothing.
	jane.served(ctx, maps+held) // once kube-apiserver's authorizer has seen the binding
	jane.get(ctx, maps, 200, false)
	alice.get(ctx, "/api/v1/nodes"+held, 403, false)
	root.get(ctx, "/api/v1/secrets"+held, 200, false)
	bob.served(ctx, maps+held)
	carol.served(ctx, maps+held)
	seen := metric(ctx, t, g, "kubeweir_authorization_invalidations_total", nil)
	revoke(ctx, t, ns, realkube.Bob)
	revoke(ctx, t, ns, "carol")
	eventually(ctx, t, func() error {
		if now := metric(ctx, t, g, "kubeweir_authorization_invalidations_total", nil); now < seen+2 {
			return fmt.Errorf("kubeweir_authorization_invalidations_total is %v, was %v, want 2 more", now, seen)
		}
		return nil
	})
	eventually(ctx, t, func() error {
		if a := bob.do(ctx, "GET", maps+held, ""); a.status != 403 {
			return fmt.Errorf("bob: %v", a)
		}
		return nil
	})
	grant(ctx, t, ns, realkube.Bob) // Bob sends no request afterwards: his last decision is a denial
	eventually(ctx, t, func() error {
		if now := metric(ctx, t, g, "kubeweir_authorization_invalidations_total", nil); now < seen+3 {
			return fmt.Errorf("kubeweir_authorization_invalidations_total is %v, was %v, want 3 more", now, seen)
		}
		return nil
	})
	jane.served(ctx, maps+held)
	jane.get(ctx, "/openapi/v2", 200, false)
	jane.get(ctx, "/openapi/v3", 200, false)

	must(t, kube.KillAPIServer())
	write := func() response { return root.do(ctx, "POST", maps, `{"metadata":{"name":"new"}}`) }
	eventually(ctx, t, func() error { // decisions cached for 500 ms have expired, and the outage is detected
		if a := jane.do(ctx, "GET", maps+held, ""); a.status != 200 || !a.marked() {
			return fmt.Errorf("jane: %v", a)
		}
		if a := root.do(ctx, "GET", "/api/v1/secrets"+held, ""); a.status != 503 {
			return fmt.Errorf("secrets, which must not be served offline: %v", a)
		}
		return nil
	})
	for range 20 {
		if a := write(); a.status != 503 || a.header.Get("Retry-After") == "" || a.took > atOnce {
			t.Fatalf("write during the outage: %v", a)
		}
	}
	jane.get(ctx, maps, 200, true)
	jane.get(ctx, maps+"/kept", 200, true)
	jane.get(ctx, maps+"?watch=true&resourceVersion=0", 200, true)
	alice.get(ctx, maps+held, 200, true)             // by the RoleBinding in the cache
	alice.get(ctx, "/api/v1/nodes"+held, 403, false) // the last decision
	bob.get(ctx, maps+held, 403, false)
	carol.get(ctx, maps+held, 503, false)
	stranger.get(ctx, maps+held, 503, false)
	newClient(t, g, "never-seen", nil).get(ctx, maps+held, 503, false)
	jane.get(ctx, "/apis/apps/v1/namespaces/"+ns+"/deployments"+held, 503, false) // no empty list for a resource that is not cached
	jane.get(ctx, "/api/v1/namespaces/kube-system/configmaps"+held, 503, false)   // no permission
	jane.get(ctx, "/openapi/v2", 200, true)
	jane.get(ctx, "/openapi/v3", 200, true)
	jane.get(ctx, "/openapi/v3/api/v1", 503, false) // never read before the outage
	carol.get(ctx, "/openapi/v2", 200, true)        // allowed to all users by system:discovery
	strict := *jane
	strict.agent = "strict"
	strict.get(ctx, maps, 503, false)
	if a := jane.do(ctx, "GET", maps, ""); !strings.Contains(a.body, `"kept"`) {
		t.Errorf("the list misses an object: %v", a)
	}
	if n := metric(ctx, t, g, "kubeweir_stale_responses_total", nil); n < 5 {
		t.Errorf("kubeweir_stale_responses_total is %v, want at least 5", n)
	}
	if n := metric(ctx, t, g, "kubeweir_rejections_total", map[string]string{"reason": "offline-denied"}); n < 1 {
		t.Errorf("kubeweir_rejections_total{reason=offline-denied} is %v, want at least 1", n)
	}

	must(t, kube.StartAPIServer(ctx))
	back := time.Now()
	eventually(ctx, t, func() error {
		if a := write(); a.status != 201 {
			return fmt.Errorf("write after the outage: %v", a)
		}
		return nil
	})
	t.Logf("writes succeed %v after kube-apiserver is ready", time.Since(back))
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps+held, ""); a.status != 200 || a.marked() {
			return fmt.Errorf("jane: %v", a)
		}
		if a := carol.do(ctx, "GET", maps+held, ""); a.status != 403 {
			return fmt.Errorf("carol: %v", a)
		}
		return nil
	})
}

// TestOfflineSettingReloads checks that the offline setting can be switched on and off at runtime,
// before and during an outage.
func TestOfflineSettingReloads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const ns = "reloaded"
	newNamespace(ctx, t, ns, realkube.Jane)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	denied := strings.Replace(settings, "default: allow", "default: deny", 1)
	g := startGatewayWith(t, writeSettings(t, file, denied))
	reload := func(content string) {
		t.Helper()
		done := map[string]string{"result": "success"}
		before := metric(ctx, t, g, "kubeweir_config_reloads_total", done)
		writeSettings(t, file, content)
		must(t, g.Signal(syscall.SIGHUP))
		eventually(ctx, t, func() error {
			if metric(ctx, t, g, "kubeweir_config_reloads_total", done) == before {
				return errors.New("the configuration was not reloaded")
			}
			return nil
		})
	}
	const maps, held = "/api/v1/namespaces/" + ns + "/configmaps", "?resourceVersion=0"
	jane := newClient(t, g, kube.Token(realkube.Jane), nil)
	jane.served(ctx, maps+held)
	reload(settings)
	valid := map[string]string{"result": "valid"}
	reviewed := metric(ctx, t, g, "kubeweir_authentication_token_reviews_total", valid)
	eventually(ctx, t, func() error { // until her token and her permission were reviewed after the reload
		jane.get(ctx, maps+held, 200, false)
		if metric(ctx, t, g, "kubeweir_authorization_offline_entries", nil) == 0 || metric(ctx, t, g, "kubeweir_authentication_token_reviews_total", valid) == reviewed {
			return errors.New("there is no offline decision for jane")
		}
		return nil
	})

	must(t, kube.KillAPIServer())
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps+held, ""); a.status != 200 || !a.marked() {
			return fmt.Errorf("jane: %v", a)
		}
		return nil
	})
	reload(denied)
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps+held, ""); a.status != 503 {
			return fmt.Errorf("jane, after offline reads were disabled: %v", a)
		}
		return nil
	})
	must(t, kube.StartAPIServer(ctx))
	jane.served(ctx, maps+held)
}

// TestOfflineReadsWhileUpstreamIsFrozen checks offline reads while kube-apiserver accepts
// connections but does not respond.
func TestOfflineReadsWhileUpstreamIsFrozen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const ns = "frozen"
	newNamespace(ctx, t, ns, realkube.Jane)
	g := startGateway(t, "--upstream-ping-interval=500ms", "--upstream-silence-timeout=2s", "--max-staleness=10s")
	const maps, held = "/api/v1/namespaces/" + ns + "/configmaps", "?resourceVersion=0"
	jane, root := newClient(t, g, kube.Token(realkube.Jane), nil), newClient(t, g, kube.AdminToken(), nil)
	jane.served(ctx, maps+held) // once kube-apiserver's authorizer has seen the binding
	jane.get(ctx, maps, 200, false)
	root.get(ctx, maps+held, 200, false)

	must(t, kube.PauseAPIServer())
	defer func() { _ = kube.ResumeAPIServer() }()
	eventually(ctx, t, func() error { // without any request
		if metric(ctx, t, g, "kubeweir_upstream_gone", nil) != 1 {
			return fmt.Errorf("the gateway has not detected the outage")
		}
		return nil
	})
	write := func() response { return root.do(ctx, http.MethodPost, maps, `{"metadata":{"name":"new"}}`) }
	strict := *jane
	strict.agent = "strict"
	for range 5 {
		if a := write(); a.status != 503 || a.header.Get("Retry-After") == "" || a.took > atOnce {
			t.Errorf("write during the outage: %v", a)
		}
		if a := strict.do(ctx, http.MethodGet, maps, ""); a.status != 503 || a.took > atOnce {
			t.Errorf("strict read during the outage: %v", a)
		}
	}
	jane.get(ctx, maps+held, 200, true)
	jane.get(ctx, maps, 200, true)
	jane.get(ctx, maps+"?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 200, true)

	must(t, kube.ResumeAPIServer())
	back := time.Now()
	eventually(ctx, t, func() error {
		if a := write(); a.status != 201 {
			return fmt.Errorf("write after the outage: %v", a)
		}
		return nil
	})
	t.Logf("writes succeed %v after kube-apiserver resumed", time.Since(back))
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, http.MethodGet, maps+held, ""); a.status != 200 || a.marked() {
			return fmt.Errorf("jane: %v", a)
		}
		return nil
	})
}
