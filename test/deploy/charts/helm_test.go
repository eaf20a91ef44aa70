package charts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const (
	chart     = "../../../deploy/charts/kubeweir"
	namespace = "kubeweir"
	// kubeVersion is the cluster version for which charts are rendered unless a value set says
	// otherwise.
	kubeVersion = "1.37.0"
)

// helm runs helm and returns its standard output. The error contains its standard error.
func helm(ctx context.Context, name, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, helms[name], args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+work, "HELM_CONFIG_HOME="+work, "HELM_DATA_HOME="+work, "KUBECACHEDIR="+filepath.Join(work, name))
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New(strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

// rendered caches the results of template: several tests render the same value sets.
var rendered sync.Map // of func() (string, error) by [2]string, helm and values

// template renders the chart, once per version of helm. Values may begin with settings in comments:
// see setting.
func template(name, values string) (string, error) {
	once, _ := rendered.LoadOrStore([2]string{name, values}, sync.OnceValues(func() (string, error) { return templateAnew(name, values) }))
	return once.(func() (string, error))()
}

func templateAnew(name, values string) (string, error) {
	args := []string{"template", setting(values, "release", "kubeweir"), chart, "--namespace", namespace,
		"--values", "-", "--kube-version", setting(values, "kube-version", kubeVersion)}
	for _, api := range strings.Fields(setting(values, "api-versions", "")) {
		args = append(args, "--api-versions", api)
	}
	return helm(context.Background(), name, values, args...)
}

// setting returns a setting from a comment of the form "# name: value" in a value set: release,
// kube-version, api-versions, or security, the Pod Security level of the namespace.
func setting(values, name, otherwise string) string {
	for line := range strings.Lines(values) {
		if value, ok := strings.CutPrefix(line, "# "+name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}

// valueSets returns the names of the value sets in testdata.
func valueSets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names
}

func valueSet(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "values", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// render returns the objects that helm renders from values.
func render(t *testing.T, name, values string) []*unstructured.Unstructured {
	t.Helper()
	text, err := template(name, values)
	if err != nil {
		t.Fatal(err)
	}
	list, err := objects(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func objects(text string) (list []*unstructured.Unstructured, err error) {
	for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			list = append(list, o)
		}
	}
}

// find returns the object of a kind and name.
func find(t *testing.T, list []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("no %s %s is rendered", kind, name)
	}
	return list[i]
}

// made matches the rendered parts that golden files leave out: keys, certificates and what is
// derived from them.
var made = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^( +(?:ca\.crt|ca\.key|front-proxy-ca\.crt|front-proxy-ca\.key|sa\.key|tls\.crt|tls\.key|token|tokens\.csv): )[A-Za-z0-9+/=]{40,}$`),
	regexp.MustCompile(`(?m)^( +kubeweir\.io/(?:certificate|renew-after): ).+$`),
	regexp.MustCompile(`(?s)( +)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`),
	// Not random, but copies that TestMonitoring compares.
	regexp.MustCompile(`(?s)(\nspec:\n  groups:\n    ).*?(\n---\n|\s*$)`),
	regexp.MustCompile(`(?ms)^(  kubeweir\.json: \|\n    )\{.*?^    \}$`),
}

// masked replaces the parts that differ on each run. Helm 4 leaves an empty line between documents.
func masked(text string) string {
	for _, m := range made {
		text = m.ReplaceAllString(text, "${1}(made)${2}")
	}
	return strings.TrimSpace(blankLines.ReplaceAllString(text, "\n")) + "\n"
}

var blankLines = regexp.MustCompile(`\n\s*\n+`)

// both runs a test with both versions of helm.
func both(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range []string{"helm3", "helm4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

func describe(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s %s", o.GetAPIVersion(), o.GetKind(), o.GetName())
}
