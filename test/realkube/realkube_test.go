package realkube

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func startCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	// The first call builds the binaries, which takes minutes.
	ctx, cancel := context.WithTimeout(t.Context(), StartTime)
	defer cancel()
	c, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func clientset(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// TestCluster checks one cluster's identities, metrics, compaction, and every way to stop and
// restart it.
func TestCluster(t *testing.T) {
	c := startCluster(t, Options{Dir: filepath.Join(t.TempDir(), "kube"), FeatureGates: map[string]bool{"WatchList": true}})
	ctx := testContext(t)

	t.Run("identities", func(t *testing.T) {
		cert, err := c.IssueClientCert("carol", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		for name, cfg := range map[string]*rest.Config{"token": c.AdminConfig(), "certificate": c.ConfigForCert(cert)} {
			if _, err := clientset(t, cfg).CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err = clientset(t, c.ConfigFor(c.Token(Alice))).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if !errors.IsForbidden(err) || !strings.Contains(err.Error(), `User "alice"`) {
			t.Errorf("alice lists pods: %v, want 403", err)
		}
		_, err = clientset(t, c.ConfigFor("nobody's")).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if !errors.IsUnauthorized(err) {
			t.Errorf("unknown token: %v, want 401", err)
		}
	})
	t.Run("version", func(t *testing.T) {
		v, err := clientset(t, c.AdminConfig()).Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if v.Major != "1" || !strings.HasPrefix(v.GitVersion, "v1.") {
			t.Errorf("version %+v", v)
		}
	})
	t.Run("kubectl", func(t *testing.T) {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := c.WriteKubeconfig(kubeconfig, c.URL(), c.ServingCAFile(), c.AdminToken()); err != nil {
			t.Fatal(err)
		}
		out, err := c.Kubectl(ctx, kubeconfig, "get", "namespaces", "-o", "name")
		if err != nil || !strings.Contains(out, "namespace/kube-system\n") {
			t.Errorf("kubectl: %q, %v", out, err)
		}
		if _, err := c.Kubectl(ctx, kubeconfig, "get", "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("kubectl get nonsense: %v", err)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		m, err := c.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := m.Sum("apiserver_request_total", map[string]string{"resource": "pods", "verb": "LIST"}); n < 1 {
			t.Errorf("pod lists counted: %v", n)
		}
	})
	t.Run("history", func(t *testing.T) { testHistory(ctx, t, c) })
	t.Run("compact", func(t *testing.T) {
		rev, err := c.Revision(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Compact(ctx, rev); err != nil {
			t.Fatal(err)
		}
		if err := c.Compact(ctx, rev); err == nil {
			t.Error("compacting the same revision twice succeeded")
		}
	})
	t.Run("restarts", func(t *testing.T) { testRestarts(ctx, t, c) })
}

func testHistory(ctx context.Context, t *testing.T, c *Cluster) {
	from, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	maps := clientset(t, c.AdminConfig()).CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "history"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Data = map[string]string{"changed": "yes"}
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "history", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	to, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const key = "/registry/configmaps/default/history"
	all, err := c.History(ctx, key, uint64(from), uint64(to))
	if err != nil || len(all) != 3 {
		t.Fatalf("%d changes of three, %v", len(all), err)
	}
	last := uint64(from)
	for i, h := range all {
		created, deleted := i == 0, i == 2
		if h.Key != key || h.Revision <= last || h.Created != created || h.Deleted != deleted || (h.Before == nil) != created || (h.After == nil) != deleted {
			t.Errorf("change %d: %+v", i, h)
		}
		last = h.Revision
	}
}

func testRestarts(ctx context.Context, t *testing.T, c *Cluster) {
	check := func(step string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	url, pid := c.URL(), c.APIServerPID()
	check("kill", c.KillAPIServer())
	if syscall.Kill(pid, 0) == nil {
		t.Error("the killed kube-apiserver is still there or was not reaped")
	}
	check("start after kill", c.StartAPIServer(ctx))
	if c.URL() != url || c.APIServerPID() == pid {
		t.Errorf("restarted at %s as %d, was %s as %d", c.URL(), c.APIServerPID(), url, pid)
	}
	if c.StartAPIServer(ctx) == nil {
		t.Error("a second kube-apiserver started")
	}

	check("pause", c.PauseAPIServer())
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := c.get(short, "/readyz"); err == nil {
		t.Error("a paused kube-apiserver responded")
	}
	check("resume", c.ResumeAPIServer())
	_, err := c.get(ctx, "/readyz")
	check("readyz after resume", err)

	check("stop", c.StopAPIServer(ctx))
	check("kill etcd", c.KillEtcd())
	check("start etcd", c.StartEtcd(ctx))
	check("stop etcd", c.StopEtcd(ctx))
	check("start etcd again", c.StartEtcd(ctx))
	check("start after stop", c.StartAPIServer(ctx))
}

// TestParallel starts two clusters at once: they must build only once, use different ports and not
// share objects.
func TestParallel(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, Options{})
			ctx := testContext(t)
			cs := clientset(t, c.AdminConfig())
			if _, err := cs.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(c.Dir()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const tail = "S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0"
	for _, name := range []string{"(kubeweir)", "(a b) c)", "()"} {
		got, err := parseStat([]byte("42 " + name + " " + tail + "\n"))
		if err != nil || got != 154*clockTick {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 (x) S 1", "42 x S 1 2 3 4 5 6 7 8 9 10 120 34 0 0"} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func TestRequiredVersion(t *testing.T) {
	goMod := []byte("module x\n\nrequire k8s.io/one v1.2.3\n\nrequire (\n\tk8s.io/two v0.1.0 // indirect\n)\n\ntool (\n\tk8s.io/three/cmd\n)\n")
	for module, want := range map[string]string{"k8s.io/one": "v1.2.3", "k8s.io/two": "v0.1.0", "k8s.io/three": ""} {
		got, err := requiredVersion(goMod, module)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", module, got, err, want)
		}
	}
}

// TestStartErrorContainsLog checks that the error of a server that could not start contains its
// log.
func TestStartErrorContainsLog(t *testing.T) {
	ctx := testContext(t)
	c, err := Start(ctx, Options{EtcdArgs: []string{"--no-such-flag"}})
	if err == nil {
		_ = c.Close()
		t.Fatal("etcd started with an unknown flag")
	}
	if !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error does not show the log: %v", err)
	}
}
