package security

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	metricsGroup   = "metrics.k8s.io"
	metricsVersion = "/apis/" + metricsGroup + "/v1"
	metricsPods    = metricsVersion + "/namespaces/default/pods"
)

// TestMetricsAPI checks the aggregated API metrics.k8s.io/v1 (Kubernetes 1.37): the gateway returns
// the same as kube-apiserver, and a later request never gets an earlier sample.
func TestMetricsAPI(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	mux := http.NewServeMux()
	write := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
	mux.HandleFunc(metricsVersion, func(w http.ResponseWriter, _ *http.Request) {
		write(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1","resources":[
			{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`)
	})
	cpu := "250m"
	pod := func() string {
		return fmt.Sprintf(`{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1","metadata":{"name":"web","namespace":"default"},
			"timestamp":"2026-01-01T00:00:00Z","window":"15s","containers":[{"name":"main","usage":{"cpu":%q,"memory":"64Mi"}}]}`, cpu)
	}
	mux.HandleFunc(metricsPods+"/web", func(w http.ResponseWriter, _ *http.Request) { write(w, pod()) })
	mux.HandleFunc(metricsPods, func(w http.ResponseWriter, _ *http.Request) {
		write(w, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1","metadata":{},"items":[`+pod()+`]}`)
	})
	api := newAggregatedAPI(t, metricsGroup, mux)
	api.place(ctx, t)
	g := startGateway(t)
	api.register(ctx, t, g, metricsPods)

	for _, cpu = range []string{"250m", "750m"} {
		for _, path := range []string{metricsVersion, metricsPods, metricsPods + "?resourceVersion=0", metricsPods + "/web", metricsPods + "/web?resourceVersion=0", metricsPods + "/none"} {
			for _, user := range []string{realkube.Admin, realkube.Alice} {
				want, got := do(ctx, t, kube.URL(), kube.Token(user), "GET", path, ""), do(ctx, t, g.URL(), kube.Token(user), "GET", path, "")
				if got.status != want.status || got.body != want.body {
					t.Errorf("%s as %s:\n%s\nwant %s", path, user, got, want)
				}
			}
		}
		paths, err := realkube.Binaries(ctx)
		must(t, err)
		dir := t.TempDir()
		config := filepath.Join(dir, "kubeconfig")
		must(t, g.WriteKubeconfig(config, kube.Token(realkube.Alice)))
		out, err := exec.CommandContext(ctx, paths.Kubectl, "--kubeconfig", config, "--cache-dir", dir, "top", "pods", "--namespace", "default", "--no-headers").CombinedOutput()
		if err != nil || strings.Join(strings.Fields(string(out)), " ") != "web "+cpu+" 64Mi" {
			t.Errorf("kubectl top pods: %v: %s", err, out)
		}
	}
}
