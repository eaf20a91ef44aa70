package security

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestStandaloneRecordsEachRequestOnce checks that the audit log of a standalone server has each
// request exactly once: writes, exec, reads from the cache and others. Requests that the server
// sends to itself are not logged.
func TestStandaloneRecordsEachRequestOnce(t *testing.T) {
	ctx := deadline(t, time.Minute)
	log := filepath.Join(t.TempDir(), "audit.log")
	s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: []string{"--audit-log-path", log}})
	cfg := administrator(t, s)
	const maps, exec = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods/p/exec?command=id"
	want := map[string]int{}
	for _, r := range []struct{ method, path, body, event string }{
		{http.MethodPost, maps, `{"metadata":{"name":"recorded"}}`, "create " + maps},
		{http.MethodPatch, maps + "/recorded", `{"data":{"a":"b"}}`, "patch " + maps + "/recorded"},
		{http.MethodGet, maps + "?resourceVersion=0", "", "list " + maps + "?resourceVersion=0"},
		{http.MethodGet, maps + "/recorded?pretty=true", "", "get " + maps + "/recorded?pretty=true"},
		{http.MethodPost, exec, "", "create " + exec},
		{http.MethodDelete, maps + "/recorded", "", "delete " + maps + "/recorded"},
	} {
		_, err := request(ctx, t, cfg, r.method, r.path, r.body)
		must(t, err)
		want[r.event+" kubernetes-admin"]++
	}
	eventually(ctx, t, func() error {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		got := map[string]int{}
		for line := range strings.Lines(string(content)) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return err
			}
			if e.Stage == auditv1.StageResponseComplete { // exec has an event before that
				got[e.Verb+" "+e.RequestURI+" "+e.User.Username]++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("audit events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// auditHook is a webhook for audit events.
type auditHook struct {
	*httptest.Server
	called chan struct{} // receives when an event arrives
	hangs  chan struct{} // responses wait until it is closed
	status int
}

func newAuditHook(t *testing.T, status int, hangs bool) *auditHook {
	t.Helper()
	h := &auditHook{called: make(chan struct{}, 10_000), hangs: make(chan struct{}), status: status}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.called <- struct{}{}
		<-h.hangs
		w.WriteHeader(h.status)
	}))
	if !hangs {
		close(h.hangs)
	}
	t.Cleanup(func() {
		if hangs {
			close(h.hangs)
		}
		h.Close()
	})
	return h
}

// flags are the flags for the webhook, with a policy that records ConfigMaps.
func (h *auditHook) flags(t *testing.T, mode string) []string {
	t.Helper()
	dir := t.TempDir()
	config, policy := filepath.Join(dir, "webhook.yaml"), filepath.Join(dir, "policy.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %s}}]\nusers: [{name: a}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", h.URL), 0o600))
	must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: RequestResponse, resources: [{resources: [configmaps]}]}\n"), 0o600))
	return []string{"--audit-policy-file", policy, "--audit-webhook-config-file", config, "--audit-webhook-mode", mode, "--audit-webhook-initial-backoff", "1ms"}
}

// createAudited creates a ConfigMap, which is recorded.
func createAudited(ctx context.Context, t *testing.T, cfg *rest.Config, name string) response {
	t.Helper()
	a, err := request(ctx, t, cfg, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"`+name+`"}}`)
	must(t, err)
	return a
}

// TestHangingAuditWebhookInBatchMode checks that requests do not wait for the webhook, and that events
// without room are counted.
func TestHangingAuditWebhookInBatchMode(t *testing.T) {
	ctx := deadline(t, time.Minute)
	hook := newAuditHook(t, http.StatusOK, true)
	s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: append(hook.flags(t, "batch"), "--audit-webhook-batch-buffer-size=4", "--audit-webhook-batch-max-size=1")})
	cfg := administrator(t, s)
	for i := range 10 {
		if a := createAudited(ctx, t, cfg, fmt.Sprint("batch-", i)); a.status != http.StatusCreated {
			t.Errorf("%+v", a)
		}
	}
	metrics, err := s.Metrics(ctx)
	must(t, err)
	if dropped := metrics.Sum("kubeweir_audit_events_total", map[string]string{"backend": "webhook", "result": "dropped"}); dropped != 16 {
		t.Errorf("%v events dropped, want 16", dropped)
	}
}

// TestHangingAuditWebhookInBlockingMode checks that a request waits for its own events only.
func TestHangingAuditWebhookInBlockingMode(t *testing.T) {
	ctx := deadline(t, time.Minute)
	hook := newAuditHook(t, http.StatusOK, true)
	s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: hook.flags(t, "blocking")})
	cfg := administrator(t, s)
	waits, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := request(waits, t, cfg, http.MethodGet, "/api/v1/namespaces/default/configmaps", "")
		ended <- err
	}()
	select {
	case <-hook.called:
	case <-ctx.Done():
		t.Fatal("the webhook was not called")
	}
	a, err := request(ctx, t, cfg, http.MethodGet, "/api/v1/namespaces/default/secrets", "") // not recorded
	if err != nil || a.status != http.StatusOK {
		t.Errorf("%+v, %v", a, err)
	}
	select {
	case err := <-ended:
		t.Errorf("the request did not wait: %v", err)
	default:
	}
	cancel()
	<-ended
}

// TestFailingAuditWebhookInStrictMode checks that a request whose first event fails is rejected before it
// has an effect, in mode blocking-strict only.
func TestFailingAuditWebhookInStrictMode(t *testing.T) {
	ctx := deadline(t, time.Minute)
	hook := newAuditHook(t, http.StatusInternalServerError, false)
	for mode, status := range map[string]int{"blocking": http.StatusCreated, "blocking-strict": http.StatusInternalServerError} {
		s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: hook.flags(t, mode)})
		cfg := administrator(t, s)
		a := createAudited(ctx, t, cfg, "strict")
		if a.status != status || status == http.StatusInternalServerError && !strings.Contains(a.body, "failed to store audit event") {
			t.Errorf("%s: %+v", mode, a)
		}
		// Namespaces are not recorded, so they can be read.
		if a, err := request(ctx, t, cfg, http.MethodGet, "/api/v1/namespaces/default", ""); err != nil || a.status != http.StatusOK {
			t.Errorf("%s: %+v, %v", mode, a, err)
		}
	}
}
