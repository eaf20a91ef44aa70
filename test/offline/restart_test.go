package offline

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// stateArgs returns arguments for a state directory, and the directory. If sealed is set, the state
// is encrypted with a key.
func stateArgs(t *testing.T, sealed bool) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	args = []string{"--shutdown-drain=1s", "--state-dir", filepath.Join(dir, "state")}
	if sealed {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		file := filepath.Join(dir, "key")
		must(t, os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)), 0o600))
		args = append(args, "--state-key-file", file)
	}
	return filepath.Join(dir, "state"), args
}

// savedFiles waits until the decisions made so far, and the collections that the tests read, are on disk.
func savedFiles(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	now := time.Now()
	eventually(ctx, t, func() error {
		for _, name := range []string{
			"configmaps.v1.json", "secrets.v1.json", "customresourcedefinitions.v1.apiextensions.k8s.io.json", "apiservices.v1.apiregistration.k8s.io.json",
			"roles.v1.rbac.authorization.k8s.io.json", "rolebindings.v1.rbac.authorization.k8s.io.json",
			"clusterroles.v1.rbac.authorization.k8s.io.json", "clusterrolebindings.v1.rbac.authorization.k8s.io.json",
		} {
			if _, err := os.Stat(filepath.Join(dir, name+".image")); err != nil {
				return err
			}
		}
		info, err := os.Stat(filepath.Join(dir, "last-words.record"))
		if err == nil && info.ModTime().Before(now) {
			err = fmt.Errorf("the offline decisions were last saved at %v", info.ModTime())
		}
		return err
	})
}

// listVersion matches the version of a list. Writes of other resources advance it between two
// reads, and before the state is saved.
var listVersion = regexp.MustCompile(`^\{"kind":"\w+","apiVersion":"v1","metadata":\{"resourceVersion":"\d+"\}`)

func versionOf(t *testing.T, body string) uint64 {
	t.Helper()
	var list struct{ Metadata metav1.ListMeta }
	must(t, json.Unmarshal([]byte(body), &list))
	version, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	must(t, err)
	return version
}

// TestWarmStartWhileUpstreamIsDown checks a warm start: the gateway is killed and restarted while
// kube-apiserver is down.
func TestWarmStartWhileUpstreamIsDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const ns = "restarted"
	newNamespace(ctx, t, ns, realkube.Jane, realkube.Alice, "carol")
	dir, args := stateArgs(t, true)
	g := startGateway(t, args...)
	const maps, held = "/api/v1/namespaces/" + ns + "/configmaps", "?resourceVersion=0"
	const nodes, secrets = "/api/v1/nodes" + held, "/api/v1/secrets" + held
	carolsCert, err := kube.IssueClientCert("carol")
	must(t, err)
	strangersCert, err := kube.IssueClientCert("stranger")
	must(t, err)
	root := newClient(t, g, kube.AdminToken(), nil)
	jane, alice, bob := newClient(t, g, kube.Token(realkube.Jane), nil), newClient(t, g, kube.Token(realkube.Alice), nil), newClient(t, g, kube.Token(realkube.Bob), nil)
	carol, stranger := newClient(t, g, "", &carolsCert), newClient(t, g, "", &strangersCert)

	jane.served(ctx, maps+held)
	carol.served(ctx, maps+held)
	alice.get(ctx, nodes, 403, false)
	bob.get(ctx, maps+held, 403, false)
	root.get(ctx, secrets, 200, false)
	before := map[*client]string{jane: jane.do(ctx, "GET", maps, "").body, carol: carol.do(ctx, "GET", maps, "").body}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, g.WriteKubeconfig(kubeconfig, kube.Token(realkube.Jane)))
	kubectl := func(cache string) (string, error) {
		return kube.Kubectl(ctx, kubeconfig, "--cache-dir", filepath.Join(t.TempDir(), cache), "get", "configmaps", "-n", ns, "-o", "name")
	}
	seen, err := kubectl("before")
	must(t, err)
	jane.served(ctx, maps+held)
	carol.served(ctx, maps+held)
	savedFiles(ctx, t, dir)

	g.Kill()
	must(t, kube.KillAPIServer())
	began := time.Now()
	must(t, g.Start(ctx))
	jane.served(ctx, maps+held)
	t.Logf("the gateway serves reads %v after its start", time.Since(began))
	version := uint64(math.MaxUint64) // that the cache holds: the saved state may be newer than the lists in before
	for c, body := range before {
		a := c.do(ctx, "GET", maps, "")
		if a.status != 200 || !a.marked() || listVersion.ReplaceAllString(a.body, "") != listVersion.ReplaceAllString(body, "") {
			t.Errorf("response after the restart: %v; before: %s", a, body)
		}
		version = min(version, versionOf(t, a.body))
	}
	if now, err := kubectl("after"); err != nil || now != seen {
		t.Errorf("kubectl prints %q, %v; before the restart %q", now, err, seen)
	}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", maps + "/kept", maps + "?watch=true&resourceVersion=0"} {
		jane.get(ctx, path, 200, true)
	}
	alice.get(ctx, maps+held, 200, true) // by the saved RoleBinding
	alice.get(ctx, nodes, 403, false)    // the last decision
	bob.get(ctx, maps+held, 403, false)
	stranger.get(ctx, maps+held, 503, false)
	newClient(t, g, "never-seen", nil).get(ctx, maps+held, 503, false)
	root.get(ctx, secrets, 503, false) // never served offline
	jane.get(ctx, "/apis/apps/v1/namespaces/"+ns+"/deployments"+held, 503, false)
	if a := root.do(ctx, "POST", maps, `{"metadata":{"name":"new"}}`); a.status != 503 {
		t.Errorf("write during the outage: %v", a)
	}
	health := func(path string) int {
		resp, err := http.Get(g.AdminURL() + path)
		must(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if live, ready, rest := health("/livez"), health("/readyz"), health("/readyz?exclude=feeds"); live != 200 || ready != 500 || rest != 200 {
		t.Errorf("/livez %d, /readyz %d, /readyz?exclude=feeds %d", live, ready, rest)
	}
	if log := g.Log(); strings.Count(log, "serving unconfirmed") != 1 {
		t.Errorf("want one log line 'serving unconfirmed':\n%s", log)
	}

	// Watches opened during the outage continue after it.
	cfg := g.ConfigFor(kube.Token(realkube.Jane))
	cfg.ContentType = "application/json" // the encoding that was read before the restart, and saved
	through, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	w, err := through.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatUint(version, 10)})
	must(t, err)
	defer w.Stop()
	must(t, kube.StartAPIServer(ctx))
	_, err = admin(t).CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must(t, err)
	select {
	case ev := <-w.ResultChan():
		if m, ok := ev.Object.(*corev1.ConfigMap); !ok || ev.Type != watch.Added || m.Name != "new" {
			ended, err := g.Families(ctx, "kubeweir_watches_ended_total")
			t.Errorf("the watch received %v; ended watches: %v, %v", ev, ended, err)
		}
	case <-ctx.Done():
		t.Fatal("the watch received no event")
	}
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps+held, ""); a.status != 200 || a.marked() || !strings.Contains(a.body, `"new"`) {
			return fmt.Errorf("jane: %v", a)
		}
		if a := stranger.do(ctx, "GET", maps+held, ""); a.status != 403 {
			return fmt.Errorf("a stranger: %v", a)
		}
		if a := root.do(ctx, "GET", secrets, ""); a.status != 200 || a.marked() {
			return fmt.Errorf("secrets: %v", a)
		}
		if ready := health("/readyz"); ready != 200 {
			return fmt.Errorf("/readyz %d", ready)
		}
		return nil
	})
	if n := metric(ctx, t, g, "kubeweir_state_loads_total", map[string]string{"result": "confirmed"}); n < 8 {
		t.Errorf("%v collections were confirmed, want at least 8", n)
	}
}

// TestWarmStartWithoutStateKey checks that without a state key no tokens are saved, so that nobody
// can authenticate after a restart during an outage.
func TestWarmStartWithoutStateKey(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const ns = "restarted-without"
	newNamespace(ctx, t, ns, realkube.Jane)
	dir, args := stateArgs(t, false)
	g := startGateway(t, args...)
	jane := newClient(t, g, kube.Token(realkube.Jane), nil)
	const maps = "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
	jane.served(ctx, maps)
	eventually(ctx, t, func() error {
		_, err := os.Stat(filepath.Join(dir, "configmaps.v1.json.image"))
		return err
	})
	if !strings.Contains(g.Log(), "without --state-key-file") {
		t.Errorf("the log does not mention the missing --state-key-file:\n%s", g.Log())
	}
	g.Kill()
	must(t, kube.KillAPIServer())
	must(t, g.Start(ctx))
	jane.get(ctx, maps, 503, false)
	jane.get(ctx, "/version", 503, false)
	must(t, kube.StartAPIServer(ctx))
	jane.served(ctx, maps)
}

// TestWarmStartDiscardsStateOfAnotherCluster checks that saved state is discarded if the upstream
// is another cluster.
func TestWarmStartDiscardsStateOfAnotherCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const ns = "another"
	newNamespace(ctx, t, ns, realkube.Jane)
	dir, args := stateArgs(t, true)
	g := startGateway(t, args...)
	jane, root := newClient(t, g, kube.Token(realkube.Jane), nil), newClient(t, g, kube.AdminToken(), nil)
	const maps = "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
	jane.served(ctx, maps)
	root.get(ctx, "/api/v1/secrets?resourceVersion=0", 200, false)
	savedFiles(ctx, t, dir)
	g.Kill()
	must(t, kube.KillAPIServer())
	must(t, g.Start(ctx))
	jane.served(ctx, maps)
	must(t, kube.DeletePrefix(ctx, "/registry/"))
	must(t, kube.StartAPIServer(ctx))
	defer func() { must(t, newReader(ctx)) }() // for the other tests
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps, ""); a.status != 403 {
			return fmt.Errorf("jane: %v", a)
		}
		if a := root.do(ctx, "GET", maps, ""); a.status != 200 || a.marked() || strings.Contains(a.body, `"kept"`) {
			return fmt.Errorf("root: %v", a)
		}
		if !strings.Contains(g.Log(), "saved decisions dropped: different cluster") {
			return fmt.Errorf("the log does not mention the different cluster:\n%s", g.Log())
		}
		return nil
	})
	must(t, kube.KillAPIServer())
	defer func() { must(t, kube.StartAPIServer(ctx)) }()
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps, ""); a.status != 403 {
			return fmt.Errorf("jane, by the decision of the new cluster: %v", a)
		}
		return nil
	})
}

// TestWarmStartWhileUpstreamIsFrozen checks a warm start while kube-apiserver accepts connections
// but does not respond.
func TestWarmStartWhileUpstreamIsFrozen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const ns = "restarted-frozen"
	newNamespace(ctx, t, ns, realkube.Jane)
	dir, args := stateArgs(t, true)
	g := startGateway(t, append(args, "--upstream-ping-interval=500ms", "--upstream-silence-timeout=2s")...)
	jane, root := newClient(t, g, kube.Token(realkube.Jane), nil), newClient(t, g, kube.AdminToken(), nil)
	const maps = "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
	jane.served(ctx, maps)
	root.get(ctx, "/api/v1/secrets?resourceVersion=0", 200, false)
	savedFiles(ctx, t, dir)
	g.Kill()
	must(t, kube.PauseAPIServer())
	defer func() { _ = kube.ResumeAPIServer() }()
	began := time.Now()
	must(t, g.Start(ctx))
	t.Logf("the gateway listens %v after its start", time.Since(began))
	jane.get(ctx, maps, 200, true)
	t.Logf("the gateway serves reads %v after its start", time.Since(began))
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", "/apis", ""); a.status != 200 || !a.marked() {
			return fmt.Errorf("discovery: %v", a)
		}
		return nil
	})
	must(t, kube.ResumeAPIServer())
	eventually(ctx, t, func() error {
		if a := jane.do(ctx, "GET", maps, ""); a.status != 200 || a.marked() {
			return fmt.Errorf("jane: %v", a)
		}
		return nil
	})
}
