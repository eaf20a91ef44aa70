package monitoring

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// targetLabels are the labels that Prometheus adds to the series of a process.
var targetLabels = []string{"job", "namespace", "instance"}

// TestExpressions makes sure that alerts and dashboard only use metrics, labels and values that
// docs/metrics.md lists.
func TestExpressions(t *testing.T) {
	known := reference(t)
	file, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	queries, err := Queries(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, expr := range queries {
		check(t, known, Concrete(expr))
	}
	used := make(map[string]bool)
	for _, rule := range alerts(t) {
		check(t, known, rule.Expr)
		uses, _ := Names(rule.Expr)
		for _, u := range uses {
			used[u.Metric] = true
		}
	}
	if len(used) < 20 {
		t.Errorf("alerts use %v only", slices.Sorted(maps.Keys(used)))
	}
}

func check(t *testing.T, known map[string]Documented, expr string) {
	t.Helper()
	uses, groups := Names(expr)
	if len(uses) == 0 {
		t.Errorf("no metric in %s", expr)
	}
	labels := slices.Clone(targetLabels)
	for _, u := range uses {
		if strings.HasPrefix(u.Metric, "go_") || strings.HasPrefix(u.Metric, "process_") {
			continue // see test/deploy/monitoring
		}
		d, ok := known[u.Metric]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, is := strings.CutSuffix(u.Metric, part); is && !ok {
				if d, ok = known[base]; ok && d.Type != "histogram" {
					t.Errorf("%s is not a histogram: %s", base, expr)
				}
				labels = append(labels, "le")
			}
		}
		if !ok {
			t.Errorf("no metric %s: %s", u.Metric, expr)
		}
		labels = slices.AppendSeq(labels, maps.Keys(d.Labels))
		for label, match := range u.Labels {
			values, ok := d.Labels[label]
			if !ok && !slices.Contains(targetLabels, label) {
				t.Errorf("%s has no label %s: %s", u.Metric, label, expr)
			}
			if values == nil {
				continue
			}
			for value := range strings.SplitSeq(match.Value, "|") {
				if !slices.Contains(values, value) {
					t.Errorf("label %s of %s has no value %s: %s", label, u.Metric, value, expr)
				}
			}
		}
	}
	for _, label := range groups {
		if !slices.Contains(labels, label) {
			t.Errorf("no metric has label %s: %s", label, expr)
		}
	}
}

func TestNames(t *testing.T) {
	uses, labels := Names(`topk(10, sum by (a, le) (rate(m_total{x="1",y=~"b|}"}[5m]))) / on (c) group_left () (0.9 * n_bytes) > 2 or vector(0) and time() - k offset 1h`)
	want := []Use{
		{"m_total", map[string]Match{"x": {"=", "1"}, "y": {"=~", "b|}"}}}, {"n_bytes", map[string]Match{}}, {"k", map[string]Match{}},
	}
	if diff := cmp.Diff(want, uses); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "c", "le"}, labels); diff != "" {
		t.Error(diff)
	}
}

var labelReference = regexp.MustCompile(`\$labels\.([a-z]+)`)

// TestRunbooks makes sure that each alert has its labels and annotations, and a complete runbook;
// and that there are no other runbooks.
func TestRunbooks(t *testing.T) {
	known := reference(t)
	folder := filepath.Join("..", "..", "docs", "runbooks")
	files, err := filepath.Glob(filepath.Join(folder, "Kubeweir*.md"))
	if err != nil {
		t.Fatal(err)
	}
	overview := read(t, filepath.Join(folder, "README.md"))
	left := make(map[string]bool)
	for _, f := range files {
		left[filepath.Base(f)] = true
	}
	for _, rule := range alerts(t) {
		file := rule.Alert + ".md"
		if !left[file] {
			t.Errorf("%s has no runbook, or is defined twice", rule.Alert)
			continue
		}
		delete(left, file)
		if want := "https://github.com/kubeweir/kubeweir/blob/main/docs/runbooks/" + file; rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is not %s", rule.Alert, want)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: severity, summary or description is missing", rule.Alert)
		}
		text := read(t, filepath.Join(folder, file))
		for _, part := range []string{"# " + rule.Alert + "\n", "## Meaning\n", "## Impact\n", "## Diagnosis\n", "```sh\n", "## Mitigation\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q", file, part)
			}
		}
		if !strings.Contains(overview, "("+file+")") {
			t.Errorf("README.md does not name %s", file)
		}
		uses, _ := Names(rule.Expr)
		for _, template := range rule.Annotations {
			for _, m := range labelReference.FindAllStringSubmatch(template, -1) {
				if !slices.ContainsFunc(uses, func(u Use) bool { return has(known, u.Metric, m[1]) }) && m[1] != "budget" {
					t.Errorf("%s: no metric has label %s", rule.Alert, m[1])
				}
			}
		}
	}
	for file := range left {
		t.Errorf("%s is the runbook of no alert", file)
	}
}

func has(known map[string]Documented, metric, label string) bool {
	d, ok := known[metric]
	if !ok {
		d = known[strings.TrimSuffix(metric, "_bucket")]
	}
	_, ok = d.Labels[label]
	return ok || slices.Contains(targetLabels, label)
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestLinks makes sure that the links of runbooks and references resolve.
func TestLinks(t *testing.T) {
	for _, pattern := range []string{"runbooks/*.md", "metrics.md", "troubleshooting.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "docs", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

func alerts(t *testing.T) []Rule {
	t.Helper()
	rules, err := Rules([]byte(read(t, "alerts.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func reference(t *testing.T) map[string]Documented {
	t.Helper()
	known, err := Reference(read(t, filepath.Join("..", "..", "docs", "metrics.md")))
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
