package chartdocs

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/config"
)

var update = flag.Bool("update", false, "write the files instead of comparing them")

const (
	chart      = "../../../deploy/charts/kubeweir"
	monitoring = "../../../deploy/monitoring"
)

// TestGeneratedFilesAreCurrent compares the generated files with what would be generated now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	values := read(t, filepath.Join(chart, "values.yaml"))
	for _, file := range []struct {
		name string
		make func(old []byte) ([]byte, error)
	}{
		{"README.md", func(old []byte) ([]byte, error) { return README(old, values) }},
		{"values.schema.json", func([]byte) ([]byte, error) { return Schema(values) }},
		{"files/resources.yaml", func([]byte) ([]byte, error) { return Resources() }},
		{"files/alerts.yaml", func([]byte) ([]byte, error) { return os.ReadFile(filepath.Join(monitoring, "alerts.yaml")) }},
		{"files/live-settings.yaml", func([]byte) ([]byte, error) { return yaml.Marshal(config.LivePaths()) }},
		{"files/dashboard.json", func([]byte) ([]byte, error) { return os.ReadFile(filepath.Join(monitoring, "dashboard.json")) }},
	} {
		path := filepath.Join(chart, file.name)
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		fresh, err := file.make(old)
		if err != nil {
			t.Errorf("%s: %v", file.name, err)
			continue
		}
		if bytes.Equal(old, fresh) {
			continue
		}
		if !*update {
			t.Errorf("%s is stale; run make docs\n%s", file.name, cmp.Diff(string(old), string(fresh)))
			continue
		}
		if err := os.WriteFile(path, fresh, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestSchemaHasEveryValue checks that the schema has exactly the values of values.yaml.
func TestSchemaHasEveryValue(t *testing.T) {
	root, err := parse(read(t, filepath.Join(chart, "values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	values, err := root.values()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, v := range values {
		want = append(want, v.Path)
	}
	slices.Sort(want)
	var schema map[string]any
	if err := json.Unmarshal(read(t, filepath.Join(chart, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	got := paths(schema, "")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(want) < 150 {
		t.Errorf("only %d values were read", len(want))
	}
}

// TestUndocumentedValuesAreRejected checks that a value without documentation is an error that
// names the value.
func TestUndocumentedValuesAreRejected(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"a: 1\n", `a: has no comment that begins with "# --"`},
		{"g:\n  # -- Fine.\n  a: 1\n  b: 2\n", `g.b: has no comment that begins with "# --"`},
		{"# -- An object.\na: {}\n", "a: is an object, so that @schema has to give additionalProperties"},
		{"# -- A list.\na: []\n", "a: is a list, so that @schema has to give items"},
		{"# -- Nothing.\na:\n", "a: has no default, so that @schema has to give the type"},
	} {
		if _, err := Schema([]byte(c.values)); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.values, err, c.want)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
