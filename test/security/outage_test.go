package security

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestEtcdOutageIsNotHidden checks that a standalone server without its etcd marks cached responses
// as stale, rejects soon the requests that need etcd, and is not ready. It must not mistake the
// silence of etcd for the absence of changes.
func TestEtcdOutageIsNotHidden(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	cluster, err := realkube.Start(ctx, realkube.Options{EtcdOnly: true})
	must(t, err)
	defer func() { _ = cluster.Close() }()
	s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: []string{"--etcd-servers", cluster.EtcdURL()}})
	cfg := administrator(t, s)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	if a, err := request(ctx, t, cfg, http.MethodPost, configMaps, `{"metadata":{"name":"a"}}`); err != nil || a.status != http.StatusCreated {
		t.Fatalf("%s, %v", a, err)
	}
	eventually(ctx, t, func() error {
		a, err := request(ctx, t, cfg, http.MethodGet, configMaps+"?resourceVersion=0", "")
		if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"name":"a"`) || a.header.Get("Warning") != "" {
			return fmt.Errorf("before the outage: %s %v, %v", a, a.header, err)
		}
		return nil
	})

	must(t, realkube.Pause(cluster.EtcdPID()))
	const waitTimeout = 11 * time.Second
	for _, tt := range []struct{ method, path, body string }{
		{http.MethodPost, configMaps, `{"metadata":{"name":"b"}}`},
		{http.MethodGet, configMaps, ""},
	} {
		began := time.Now()
		a, err := request(ctx, t, cfg, tt.method, tt.path, tt.body)
		if took := time.Since(began); err != nil || took > waitTimeout || a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout {
			t.Errorf("%s %s: after %v %s, %v", tt.method, tt.path, took, a, err)
		}
		if (a.status == http.StatusServiceUnavailable) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%s %s: %s %v", tt.method, tt.path, a, a.header)
		}
	}
	client := &http.Client{Timeout: 2 * time.Second}
	if resp, err := client.Get(s.AdminURL() + "/readyz"); err != nil || resp.StatusCode == http.StatusOK {
		t.Errorf("/readyz: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	must(t, cluster.KillEtcd()) // which is noticed sooner than a silent etcd
	eventually(ctx, t, func() error {
		a, err := request(ctx, t, cfg, http.MethodGet, configMaps+"?resourceVersion=0", "")
		if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"name":"a"`) || a.header.Get("Age") == "" || !strings.HasPrefix(a.header.Get("Warning"), "110 ") {
			return fmt.Errorf("in the outage: %s %v, %v", a, a.header, err)
		}
		return nil
	})
	must(t, cluster.StartEtcd(ctx))
	eventually(ctx, t, func() error {
		a, err := request(ctx, t, cfg, http.MethodGet, configMaps, "")
		if err != nil || a.status != http.StatusOK {
			return fmt.Errorf("after the outage: %s, %v", a, err)
		}
		a, err = request(ctx, t, cfg, http.MethodGet, configMaps+"?resourceVersion=0", "")
		if err != nil || a.header.Get("Warning") != "" {
			return fmt.Errorf("after the outage: %s %v, %v", a, a.header, err)
		}
		return nil
	})
}
