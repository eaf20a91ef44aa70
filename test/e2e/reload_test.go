package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// mountedFile is a configuration file in a directory as kubelet mounts a ConfigMap. The file is a
// symbolic link into a directory whose name is a symbolic link, which each version of the ConfigMap
// replaces.
type mountedFile struct {
	t       *testing.T
	dir     string
	version int
}

func (f *mountedFile) path() string { return filepath.Join(f.dir, "gateway.yaml") }

func (f *mountedFile) write(content string) {
	f.t.Helper()
	f.version++
	name := fmt.Sprintf("..v%d", f.version)
	must(f.t, os.Mkdir(filepath.Join(f.dir, name), 0o700))
	must(f.t, os.WriteFile(filepath.Join(f.dir, name, "gateway.yaml"), []byte(content), 0o600))
	link := filepath.Join(f.dir, "..data_tmp")
	must(f.t, os.Symlink(name, link))
	must(f.t, os.Rename(link, filepath.Join(f.dir, "..data")))
	if f.version == 1 {
		must(f.t, os.Symlink("..data/gateway.yaml", f.path()))
		return
	}
	must(f.t, os.RemoveAll(filepath.Join(f.dir, fmt.Sprintf("..v%d", f.version-1))))
}

// reloadBench is a gateway whose configuration file changes at runtime.
type reloadBench struct {
	*realkube.Gateway
	t    *testing.T
	ctx  context.Context
	file *mountedFile
}

// metric waits until a metric has a value.
func (b *reloadBench) metric(name string, labels map[string]string, want float64) {
	b.t.Helper()
	eventually(b.ctx, b.t, waitTimeout, func() error {
		m, err := b.Metrics(b.ctx)
		if err == nil && m.Sum(name, labels) != want {
			err = fmt.Errorf("%s%v is %v, want %v:\n%s", name, labels, m.Sum(name, labels), want, b.Log())
		}
		return err
	})
}

// reloads waits until there have been the given number of reloads with a result.
func (b *reloadBench) reloads(result string, want float64) {
	b.t.Helper()
	b.metric("kubeweir_config_reloads_total", map[string]string{"result": result}, want)
}

// logged waits for a log line that contains all texts.
func (b *reloadBench) logged(texts ...string) {
	b.t.Helper()
	eventually(b.ctx, b.t, waitTimeout, func() error {
		for line := range strings.Lines(b.Log()) {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return nil
			}
		}
		return fmt.Errorf("no line with %q:\n%s", texts, b.Log())
	})
}

// TestReload replaces the configuration file of a running gateway, as kubelet does it, by valid and
// invalid ones.
func TestReload(t *testing.T) {
	const namespace = "reload"
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, namespace)
	file := &mountedFile{t: t, dir: t.TempDir()}
	file.write("{}\n")
	b := &reloadBench{startGateway(t, "--config="+file.path()), t, ctx, file}
	admin := through(t, b.Gateway, identity{token: kube.AdminToken()})
	configMaps := "/api/v1/namespaces/" + namespace + "/configmaps"
	write := func(want int) {
		t.Helper()
		eventually(ctx, t, waitTimeout, func() error {
			a, err := admin.send(ctx, request{method: http.MethodPost, path: configMaps + "?dryRun=All", typ: typeJSON, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`})
			if err == nil && a.status != want {
				err = fmt.Errorf("%v, want %d", a, want)
			}
			return err
		})
	}
	write(http.StatusCreated)
	b.reloads("failure", 0)

	// A new rule applies to the next request, and ends watches that it serves differently.
	up := direct(t, identity{token: kube.AdminToken()})
	secrets := "/api/v1/namespaces/" + namespace + "/secrets"
	a, err := up.send(ctx, request{method: http.MethodPost, path: secrets, typ: typeJSON, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"password":"swordfish"}}`})
	must(t, err)
	if a.status != http.StatusCreated {
		t.Fatal(a)
	}
	const hidden = "c3dvcmRmaXNo" // swordfish in base64
	watched := make(chan response, 1)
	go func() {
		a, _ := admin.send(ctx, request{path: secrets + "?watch=1&resourceVersion=0"})
		watched <- a
	}()
	b.metric("kubeweir_authorization_watches", nil, 1)
	file.write("rules:\n- users: ['*']\n  readOnly: true\n  view: redacted\n")
	b.reloads("success", 1)
	write(http.StatusForbidden)
	select {
	case a := <-watched:
		if !strings.Contains(a.body, hidden) {
			t.Errorf("the watch from before the reload: %v", a)
		}
	case <-ctx.Done():
		t.Fatal("the watch stays open, unredacted")
	}
	if a := admin.get(ctx, t, secrets+"?resourceVersion=0", typeJSON); strings.Contains(a.body, hidden) {
		t.Errorf("list: %v", a)
	}
	b.metric("kubeweir_watches_ended_total", map[string]string{"reason": "policy-changed"}, 1)

	// An invalid file changes nothing, and is logged once with the position of the error.
	file.write("consistency:\n  default: sesion\n")
	b.reloads("failure", 1)
	b.metric("kubeweir_config_last_reload_successful", nil, 0)
	b.logged("level=ERROR", "configuration rejected, the settings in force stay", "gateway.yaml:2: consistency.default must be strict or session")
	must(t, os.Remove(filepath.Join(file.dir, "..data")))
	b.reloads("failure", 2)
	b.logged("level=ERROR", "configuration rejected", "gateway.yaml does not exist")
	write(http.StatusForbidden)

	// SIGHUP reloads all other live settings. The log names the settings that need a restart.
	file.write("log: {level: debug}\nlimits: {maxConnections: 77, maxInFlight: 99}\nconsistency: {default: session}\n")
	must(t, b.Signal(syscall.SIGHUP))
	write(http.StatusCreated)
	b.metric("kubeweir_config_last_reload_successful", nil, 1)
	b.metric("kubeweir_config_restart_settings", nil, 1)
	b.metric("kubeweir_requests_in_flight_limit", map[string]string{"kind": "short"}, 99)
	b.logged("level=INFO", "configuration reloaded", "consistency.default", "rules", "log.level")
	b.logged("level=WARN", "need a restart", "limits.maxConnections")
	if strings.Contains(b.Log(), "need a restart, until then the old values are in force\" settings=\"[limits.maxConnections ") {
		t.Errorf("the log names other settings that need a restart:\n%s", b.Log())
	}
	eventually(ctx, t, waitTimeout, func() error { // in session mode the cache serves lists
		before, err := b.Metrics(ctx)
		if err != nil {
			return err
		}
		admin.get(ctx, t, configMaps, typeJSON)
		after, err := b.Metrics(ctx)
		cached := map[string]string{"verb": "list", "resource": "configmaps", "source": "cached"}
		if err == nil && after.Sum("kubeweir_requests_total", cached) == before.Sum("kubeweir_requests_total", cached) {
			err = fmt.Errorf("the list was not served from the cache")
		}
		return err
	})
	b.logged("level=DEBUG")

	// Reset all settings.
	file.write("{}\n")
	b.metric("kubeweir_config_restart_settings", nil, 0)
	b.metric("kubeweir_config_last_reload_successful", nil, 1)
}
