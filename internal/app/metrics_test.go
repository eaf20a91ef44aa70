package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app/recording"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/proxy/tracing/tracingtest"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// TestMetricsReference: docs/metrics.md has every metric that is registered.
func TestMetricsReference(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "metrics.md")
	want := reference(t, allMetrics(t))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/metrics.md is not what the code says; run make docs")
	}
}

// TestMetricNames: names follow the conventions of Prometheus.
func TestMetricNames(t *testing.T) {
	all := allMetrics(t)
	for name, m := range all {
		if m.kind == "counter" != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, m.kind)
		}
		if m.help == "" || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: the help %q is no sentence", name, m.help)
		}
		if strings.Contains(name, "millis") || strings.Contains(name, "_ms") || strings.Contains(name, "_kb") {
			t.Errorf("%s is not in base units", name)
		}
		if limited, ok := strings.CutSuffix(name, "_limit"); ok && all[limited] == nil {
			t.Errorf("%s limits nothing", name)
		}
	}
}

// metric is what is known of one; its name lacks kubeweir_.
type metric struct {
	help, kind string
	labels     []string
	modes      []string
}

// allMetrics are those of a gateway, and of a standalone with either store, that have an audit log and a sidecar
// listener. The gateway and etcd are never reached.
func allMetrics(t *testing.T) map[string]*metric {
	t.Helper()
	all := make(map[string]*metric)
	standalone, client := running(t, "")
	call(t, client, "GET", standalone.URL()+"/api/v1/namespaces?resourceVersion=0", "", 200)
	kinds := make(map[string]string)
	families, err := standalone.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	c := config.Default()
	c.Kubeconfig, c.CertDir, c.Audit.Path = filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir(), filepath.Join(t.TempDir(), "audit")
	c.State.Dir = t.TempDir()
	c.Tracing.ConfigFile = tracingtest.New(t).ConfigFile(t, 0)
	c.Rules = []config.Rule{{UpstreamRequestsPerSecond: 1}} // its counts are exported from the rules in force
	if err := os.WriteFile(c.Kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}],
		contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {token: t}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway, err := NewGateway(c, "kubeweir/test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.Close)
	etcdMetrics := &recordingRegistry{Registry: prometheus.NewRegistry()}
	_, err = etcd.Open(t.Context(), etcd.Options{Endpoints: []string{"http://127.0.0.1:1"}, DialTimeout: time.Millisecond, Registerer: etcdMetrics})
	if err == nil {
		t.Fatal("etcd was reached")
	}
	c.State.Dir, c.ClusterProfiles.Kubeconfig = "", c.Kubeconfig
	hub := prometheus.NewRegistry()
	if _, err := newProfiles(c, "kubeweir/test", slog.New(slog.DiscardHandler), hub); err != nil {
		t.Fatal(err)
	}
	describe(t, all, "gateway", gateway.registry, kinds)
	describe(t, all, "gateway", hub, kinds)
	describe(t, all, "standalone", standalone.registry, kinds)
	audit := prometheus.NewRegistry()
	if opened, err := recording.Open(&c.Audit, slog.New(slog.DiscardHandler), audit); err != nil || opened.Close(t.Context()) != nil {
		t.Fatal(err)
	}
	describe(t, all, "standalone", audit, kinds)
	describe(t, all, "standalone", etcdMetrics.Registry, kinds)
	return all
}

// recordingRegistry is a registry that nothing is taken back from.
type recordingRegistry struct{ *prometheus.Registry }

// Unregister implements prometheus.Registerer.
func (recordingRegistry) Unregister(prometheus.Collector) bool { return true }

// description is what a prometheus.Desc tells: it has no other way to.
var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// describe adds what a registry has.
func describe(t *testing.T, all map[string]*metric, mode string, r *prometheus.Registry, kinds map[string]string) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000) // the registry is locked while it writes to it
	r.Describe(descs)
	close(descs)
	for d := range descs {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s cannot be read", d)
		}
		full, _ := strconv.Unquote(m[1])
		name, ok := strings.CutPrefix(full, "kubeweir_")
		if !ok {
			continue
		}
		found := all[name]
		if found == nil {
			found = &metric{kind: kinds[full]}
			found.help, _ = strconv.Unquote(m[2])
			if found.kind == "" {
				found.kind = kindOf(r, d)
			}
			all[name] = found
		}
		for constant := range strings.SplitSeq(m[3], ",") {
			if label, _, ok := strings.Cut(constant, "="); ok && !slices.Contains(found.labels, label) {
				found.labels = append(found.labels, label)
			}
		}
		for label := range strings.SplitSeq(m[4], ",") {
			if label != "" && !slices.Contains(found.labels, label) {
				found.labels = append(found.labels, label)
			}
		}
		if !slices.Contains(found.modes, mode) {
			found.modes = append(found.modes, mode)
		}
	}
}

// describing is a collector that claims a description.
type describing struct{ *prometheus.Desc }

func (d describing) Describe(ch chan<- *prometheus.Desc) { ch <- d.Desc }
func (describing) Collect(chan<- prometheus.Metric)      {}

// kindOf finds the collector that has a description, by trying to register it once more, and what it collects: also
// of one that has nothing to show yet.
func kindOf(r *prometheus.Registry, d *prometheus.Desc) string {
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(r.Register(describing{d}), &registered) {
		return ""
	}
	switch registered.ExistingCollector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	collected := make(chan prometheus.Metric, 1000)
	registered.ExistingCollector.Collect(collected)
	close(collected)
	for c := range collected {
		if c.Desc().String() != d.String() {
			continue
		}
		var out dto.Metric
		switch _ = c.Write(&out); {
		case out.Counter != nil:
			return "counter"
		case out.Gauge != nil:
			return "gauge"
		case out.Histogram != nil:
			return "histogram"
		}
	}
	return ""
}

const head = `# Metrics

The admin listener (` + "`--admin-listen`" + `) serves these metrics at ` + "`/metrics`" + `. This file is generated from the code (` + "`make docs`" + `). The
[dashboard and the alerts](../deploy/monitoring) use these metrics; each alert has a [runbook](runbooks/README.md).

The listener also serves the Go client library's metrics ` + "`go_*`" + ` (memory, garbage collection, goroutines) and ` + "`process_*`" + `
(CPU time, resident memory, open files).

- *gateway* and *standalone* mark metrics that only this mode has.
- Metrics without labels, and those whose labels have few values, exist from the start. Others appear when they first count something.
- Names contain the unit (seconds, bytes). ` + "`_total`" + ` counts since the start. ` + "`_limit`" + ` is the upper limit of the metric with the same name.

## Labels

A gateway of [several clusters](clusters.md) adds the label ` + "`cluster`" + ` to the metrics of a cluster.

Labels never contain names of objects, namespaces or users, or other strings that clients choose.

`

// reference is docs/metrics.md.
func reference(t *testing.T, all map[string]*metric) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(head)
	for _, l := range everywhere {
		values := ""
		if l.values != "" {
			values = "`" + strings.ReplaceAll(l.values, ", ", "`, `") + "`"
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", l.label, strings.Join(nonEmpty(values, l.bound), "; "))
	}
	b.WriteString("\nThe values of other labels are in the tables.\n")
	left := maps.Clone(all)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.intro != "" {
			b.WriteString(s.intro + "\n\n")
		}
		b.WriteString("| metric | type | labels | description |\n|---|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(left)) {
			if slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				line(t, &b, name, left[name])
				delete(left, name)
			}
		}
	}
	for name := range left {
		t.Errorf("%s has no section in metrics_text_test.go", name)
	}
	for name := range healthy {
		if all[name] == nil {
			t.Errorf("metrics_text_test.go says what is healthy for %s, which there is not", name)
		}
	}
	return b.String()
}

func line(t *testing.T, b io.Writer, name string, m *metric) {
	t.Helper()
	if m.kind == "" {
		t.Errorf("%s: its type is not known", name)
	}
	var labels []string
	for _, l := range m.labels {
		cell := "`" + l + "`"
		values, known := particular[name+"."+l]
		if values != "" {
			cell += " (" + values + ")"
		}
		for _, e := range everywhere {
			known = known || e.label == l
		}
		if !known {
			t.Errorf("metrics_text_test.go does not say which values label %s of %s has", l, name)
		}
		labels = append(labels, cell)
	}
	mode := ""
	if len(m.modes) == 1 {
		mode = "*" + m.modes[0] + "*"
	}
	good := healthy[name]
	if good != "" {
		good = "Healthy: " + good + "."
	}
	help := strings.ReplaceAll(m.help, "|", `\|`)
	_, _ = fmt.Fprintf(b, "| `kubeweir_%s` | %s | %s | %s |\n", name, m.kind, strings.Join(labels, ", "), strings.Join(nonEmpty(mode, help, good), " "))
}

func nonEmpty(words ...string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}
