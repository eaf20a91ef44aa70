package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	flowbootstrap "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// waitTimeout bounds what a test waits for; nothing takes nearly as long.
const waitTimeout = 30 * time.Second

// build makes a server on a store in memory.
func build(t testing.TB) *Server {
	t.Helper()
	return buildWith(t, Options{})
}

// buildWith is build with further options.
func buildWith(t testing.TB, opts Options) *Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	engine, err := embedded.Open(embedded.Options{Dir: "store", FS: vfs.NewMem(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	opts.Engine, opts.Identity.ServiceAccountKey, opts.Logger = engine, key, log
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listen serves s on the loopback interface; whoever brings no credentials is u, or
// anonymous if that is nil.
func listen(t testing.TB, s *Server, u user.Info) *rest.Config {
	t.Helper()
	l := httptest.NewUnstartedServer(s.Handler())
	l.Config.BaseContext = func(net.Listener) context.Context {
		if u == nil {
			return context.Background()
		}
		return WithUser(context.Background(), u)
	}
	l.Start()
	t.Cleanup(l.Close)
	// Before the listener is closed, which waits for watches.
	t.Cleanup(func() { _ = s.Close() })
	return &rest.Config{Host: l.URL, QPS: -1}
}

// start runs a server that is complete, and returns what reaches it as a member of
// system:masters.
func start(t testing.TB) (context.Context, *Server, *rest.Config) {
	t.Helper()
	s := build(t)
	ctx, config := run(t, s)
	return ctx, s, config
}

// run starts s.
func run(t testing.TB, s *Server) (context.Context, *rest.Config) {
	t.Helper()
	config := listen(t, s, Privileged())
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, config
}

func client(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// get asks for a path and returns status and body.
func get(t testing.TB, config *rest.Config, path string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// TestBeforeStart: a server that is not ready says so, and does not deny that there
// are resources it knows nothing of yet.
func TestBeforeStart(t *testing.T) {
	config := listen(t, build(t), Privileged())
	if status, _, body := get(t, config, "/readyz"); status != http.StatusInternalServerError {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _, body := get(t, config, "/apis/example.com/v1/foos"); status != http.StatusServiceUnavailable || !strings.Contains(body, "before all known HTTP paths have been installed") {
		t.Errorf("a path that may come: %d %s", status, body)
	}
	if status, _, body := get(t, config, "/api/v1/namespaces/default/configmaps"); status != http.StatusOK {
		t.Errorf("a built-in resource: %d %s", status, body)
	}
}

// TestHealthChecks: the checks have kube-apiserver's names and texts.
func TestHealthChecks(t *testing.T) {
	opts := build(t).opts
	storeErr, cacheErr := errors.New("disk"), errors.New("stale")
	opts.StoreHealth, opts.CacheHealth = func() error { return storeErr }, func() error { return cacheErr }
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	config := listen(t, s, Privileged())
	wants := func(path string, status int, texts ...string) {
		t.Helper()
		got, _, body := get(t, config, path)
		if got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s: no %q in\n%s", path, text, body)
			}
		}
	}
	wants("/readyz", 500, "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n[-]cache failed: reason withheld\n",
		"[-]poststarthook/bootstrap-controller failed: reason withheld\n", "readyz check failed\n")
	wants("/livez/etcd", 500, "internal server error: disk\n")
	wants("/readyz/poststarthook/rbac/bootstrap-roles", 500, "internal server error: not finished\n")
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants("/readyz?verbose&exclude=etcd&exclude=etcd-readiness&exclude=cache", 200, "[+]etcd excluded: ok\n", "[+]shutdown ok\nreadyz check passed\n")
	storeErr = nil
	wants("/livez", 200, "ok")
	wants("/readyz", 500, "[-]cache failed")
	cacheErr = nil
	wants("/readyz", 200, "ok")
	wants("/livez?verbose", 200, "[+]autoregister-completion ok\n", "livez check passed\n")
	wants("/livez/cache", 404)
	wants("/metrics/slis", 200, `kubernetes_healthcheck{name="etcd",type="livez"} 1`, `kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"}`)
}

// TestFlagz shows the flags, and /statusz names the page. Without flags there is none.
func TestFlagz(t *testing.T) {
	s := build(t)
	if status, _, _ := get(t, listen(t, s, Privileged()), "/flagz"); status == http.StatusOK {
		t.Error("a page without flags")
	}
	opts := s.opts
	opts.Flags = map[string]string{"data-dir": "d"}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	config := listen(t, s, Privileged())
	if status, _, body := get(t, config, "/flagz"); status != http.StatusOK || !strings.Contains(body, "data-dir") {
		t.Errorf("/flagz: %d %s", status, body)
	}
	if status, _, body := get(t, config, "/statusz"); status != http.StatusOK || !strings.Contains(body, "/flagz") {
		t.Errorf("/statusz: %d %s", status, body)
	}
}

// TestBootstrap: after Start there is what clients rely on.
func TestBootstrap(t *testing.T) {
	ctx, _, config := start(t)
	k := client(t, config)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	// The service comes when the server is ready.
	w, err := k.CoreV1().Services("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Object == nil || e.Object.(*corev1.Service).Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("service default/kubernetes: %v", e)
	}
	if _, err := k.RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := k.SchedulingV1().PriorityClasses().Get(ctx, "system-node-critical", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, schema := range append(flowbootstrap.MandatoryFlowSchemas, flowbootstrap.SuggestedFlowSchemas...) {
		if _, err := k.FlowcontrolV1().FlowSchemas().Get(ctx, schema.Name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if levels, err := k.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, metav1.ListOptions{}); err != nil || len(levels.Items) != 8 {
		t.Errorf("priority levels %v, %v", levels, err)
	}
	if _, err := k.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/readyz", "/livez", "/healthz"} {
		if status, _, body := get(t, config, path); status != http.StatusOK || body != "ok" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestRestart: what was written is there after a server on the same store was closed,
// and a second start leaves alone what is right.
func TestRestart(t *testing.T) {
	ctx, first, config := start(t)
	if _, err := client(t, config).CoreV1().ConfigMaps("default").Create(ctx, configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := client(t, config).RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := New(first.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Start(ctx); err != nil {
		t.Fatal(err)
	}
	k := client(t, second.Loopback())
	if _, err := k.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	after, err := k.RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{})
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("cluster-admin at %s, was at %s, %v", after.ResourceVersion, before.ResourceVersion, err)
	}
}

// TestClose ends watches, and answers 503 afterwards.
func TestClose(t *testing.T) {
	ctx, s, config := start(t)
	w, err := client(t, config).CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range w.ResultChan() { // until it is closed
	}
	if ctx.Err() != nil {
		t.Error("the watch did not end")
	}
	if status, _, body := get(t, config, "/version"); status != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d %s", status, body)
	}
}

// TestCloseWhileStarting at any point of it: Start fails, Close waits for that, and
// nothing ends the process.
func TestCloseWhileStarting(t *testing.T) {
	moments := []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, time.Millisecond, 20 * time.Millisecond}
	for _, after := range moments[:soak.Cases(3, len(moments))] {
		s := build(t)
		closed := make(chan error, 1)
		time.AfterFunc(after, func() { closed <- s.Close() })
		err := s.Start(t.Context())
		if err == nil {
			t.Logf("started within %v", after)
		} else if !errors.Is(err, errClosed) && !errors.Is(err, context.Canceled) {
			t.Errorf("closed after %v: %v", after, err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// TestMetrics are those of the options and those of the library.
func TestMetrics(t *testing.T) {
	s := build(t)
	registry := prometheus.NewPedanticRegistry()
	s.opts.Registerer = registry
	other, err := New(s.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := other.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubeweir_origin_start_seconds", "kubeweir_origin_requests_in_flight"} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	config := listen(t, other, Privileged())
	if status, _, body := get(t, config, "/metrics"); status != http.StatusOK || !strings.Contains(body, "apiserver_request_total") {
		t.Errorf("/metrics: %d", status)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}
}
