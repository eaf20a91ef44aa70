package monitoring

import (
	"context"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/deploy/monitoring"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// A process is a running kubeweir whose metrics are read.
type process struct {
	name    string
	admin   string
	config  *rest.Config
	metrics func(context.Context) (realkube.Metrics, error)
	cluster *realkube.Cluster // the cluster behind a gateway
}

// processes starts a gateway in front of a real kube-apiserver, and a standalone with each kind of
// store.
func processes(t *testing.T) []process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	cluster, err := realkube.Start(ctx, realkube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	address, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := realkube.StartGateway(ctx, cluster, "--audit-log-path", filepath.Join(t.TempDir(), "audit.log"), "--state-dir", t.TempDir(),
		"--upstream-servers", cluster.URL()+",https://localhost:"+address.Port())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.Close)
	saved := func(ctx context.Context) (realkube.Metrics, error) {
		for {
			metrics, err := gateway.Metrics(ctx)
			if err != nil || metrics["kubeweir_state_saves_total"] != nil {
				return metrics, err
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	out := []process{{"gateway", gateway.AdminURL(), gateway.AdminConfig(), saved, cluster}}
	tracing := filepath.Join(t.TempDir(), "tracing.yaml") // nobody listens
	if err := os.WriteFile(tracing, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:1\nsamplingRatePerMillion: 1000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string]realkube.StandaloneOptions{
		"store": {Dir: t.TempDir(), ExtraArgs: []string{"--tracing-config-file", tracing}},
		"etcd":  {Dir: t.TempDir(), Cluster: cluster, SharedStore: true},
	} {
		standalone, err := realkube.StartStandalone(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(standalone.Close)
		config, err := standalone.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, process{name, standalone.AdminURL(), config, standalone.Metrics, nil})
	}
	return out
}

// TestRunning checks that the metrics of running processes are those of docs/metrics.md, and that
// the commands of the runbooks work.
func TestRunning(t *testing.T) {
	for program, pkg := range map[string]string{"curl": "curl", "openssl": "openssl", "iostat": "sysstat"} {
		testbed.Installed(t, program, pkg)
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := monitoring.Reference(string(text))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, p := range processes(t) {
		use(t, p.config)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		metrics, err := p.metrics(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		documented(t, p.name, metrics, known)
		for name := range metrics {
			seen[name] = true
		}
		runbooks(t, filepath.Join(root, "docs", "runbooks"), &p)
		if p.cluster != nil {
			prose(t, filepath.Join(root, "docs", "runbooks"), &p, p.cluster)
		}
	}
	for _, q := range dashboardQueries(t) {
		uses, _ := monitoring.Names(monitoring.Concrete(q))
		for _, u := range uses {
			if _, ok := known[u.Metric]; !ok && !seen[u.Metric] && !strings.HasPrefix(u.Metric, "kubeweir_") {
				t.Errorf("no process has %s: %s", u.Metric, q)
			}
		}
	}
	// The remaining metrics need a failure, an upstream with other features, or a hub.
	for name := range known {
		if !seen[name] && !slices.Contains([]string{
			"kubeweir_upstream_missing_rights", "kubeweir_connections_rejected_total", "kubeweir_malformed_requests_total", "kubeweir_etcd_request_errors_total",
			"kubeweir_cache_feed_restarts_total", "kubeweir_cache_differences_total",
			"kubeweir_budget_exceeded_total", "kubeweir_clusterprofiles_rejected",
		}, name) {
			t.Errorf("no process has %s", name)
		}
	}
}

// use sends requests that the metrics count.
func use(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.CoreV1().Namespaces()
	for _, version := range []string{"0", ""} {
		if _, err := namespaces.List(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch, err := namespaces.Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	labels := `{"metadata":{"labels":{"seen":` + strconv.Quote(strconv.FormatInt(time.Now().Unix(), 10)) + `}}}`
	if _, err := namespaces.Patch(ctx, "default", "application/merge-patch+json", []byte(labels), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watch.ResultChan() {
		if event.Type == "MODIFIED" {
			return
		}
	}
	t.Fatal("the watch ended early")
}

// documented checks names, types, labels and label values.
func documented(t *testing.T, process string, metrics realkube.Metrics, known map[string]monitoring.Documented) {
	t.Helper()
	for name, family := range metrics {
		if !strings.HasPrefix(name, "kubeweir_") {
			continue
		}
		d, ok := known[name]
		if kind := strings.ToLower(family.GetType().String()); !ok || kind != d.Type {
			t.Errorf("%s: %s is a %s, documented as %q", process, name, kind, d.Type)
			continue
		}
		want := slices.Sorted(maps.Keys(d.Labels))
		for _, series := range family.GetMetric() {
			var labels []string
			for _, label := range series.GetLabel() {
				labels = append(labels, label.GetName())
				if values := d.Labels[label.GetName()]; values != nil && label.GetValue() != "" && !slices.Contains(values, label.GetValue()) {
					t.Errorf("%s: label %s of %s has the value %s, which is not documented", process, label.GetName(), name, label.GetValue())
				}
			}
			slices.Sort(labels)
			if !slices.Equal(labels, want) {
				t.Errorf("%s: %s has labels %v, documented are %v", process, name, labels, want)
				break
			}
		}
	}
}

var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// runbooks runs the commands of the runbooks, and of troubleshooting.md, that apply to the process.
func runbooks(t *testing.T, folder string, p *process) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d runbooks, %v", len(files), err)
	}
	for _, file := range append(files, filepath.Join(folder, "..", "troubleshooting.md")) {
		about := "gateway"
		if name := filepath.Base(file); strings.HasPrefix(name, "KubeweirStore") {
			about = "store"
		} else if strings.HasPrefix(name, "KubeweirEtcd") {
			about = "etcd"
		}
		if about != p.name {
			continue
		}
		typeBlocks(t, file, append(os.Environ(), "ADMIN="+p.admin))
	}
}

// typeBlocks runs the sh blocks of a page. Each must print something.
func typeBlocks(t *testing.T, file string, env []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := shell.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Errorf("%s has no commands", file)
	}
	for _, block := range blocks {
		script := strings.ReplaceAll(block[1], "export ADMIN=http://127.0.0.1:9444\n", "")
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-u", "-c", script)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s\n%s", filepath.Base(file), err, script, out)
		}
	}
}
