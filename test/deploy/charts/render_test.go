package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
)

// TestLint checks that both versions of helm lint the chart without findings in every mode.
func TestLint(t *testing.T) {
	both(t, func(t *testing.T, name string) {
		for _, mode := range []string{"gateway", "standalone"} {
			if out, err := helm(t.Context(), name, "", "lint", "--strict", chart, "--set", "mode="+mode, "--kube-version", kubeVersion); err != nil {
				t.Errorf("%s: %v\n%s", mode, err, out)
			}
		}
	})
}

// TestTemplate compares the rendered value sets with the golden files. Both versions of helm must
// render the same. The golden files of a mode's defaults contain all objects, the others only those
// that differ from the defaults.
func TestTemplate(t *testing.T) {
	sets := valueSets(t)
	if len(sets) < 25 {
		t.Errorf("there are only %d value sets", len(sets))
	}
	both(t, func(t *testing.T, name string) {
		usual := make(map[string][]string)
		for _, mode := range []string{"gateway", "standalone"} {
			usual[mode] = documents(t, name, mode+"-defaults")
		}
		for _, set := range sets {
			mode, _, _ := strings.Cut(set, "-")
			got := strings.Join(usual[mode], "")
			if !strings.HasSuffix(set, "-defaults") {
				got = difference(usual[mode], documents(t, name, set))
			}
			golden := filepath.Join("testdata", "golden", set+".yaml")
			if *update && name == "helm4" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(golden)
			if err != nil && !*update {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" && !*update {
				t.Errorf("%s: if the change is intended, run go test ./test/deploy/charts -run TestTemplate -update:\n%s", set, diff)
			}
		}
	})
}

const separator = "---\n"

// documents returns the documents that helm renders from a value set, without random parts.
func documents(t *testing.T, name, set string) []string {
	t.Helper()
	text, err := template(name, valueSet(t, set))
	if err != nil {
		t.Fatalf("%s: %v", set, err)
	}
	list := strings.Split(masked(text), separator)[1:]
	for i := range list {
		list[i] = separator + strings.TrimSpace(list[i]) + "\n"
	}
	return list
}

// difference returns the documents that are only in list, and the names of those that are only in
// usual.
func difference(usual, list []string) string {
	var out strings.Builder
	for _, document := range usual {
		if !slices.ContainsFunc(list, func(other string) bool { return heading(other) == heading(document) }) {
			out.WriteString("# Without " + heading(document) + "\n")
		}
	}
	for _, document := range list {
		if !slices.Contains(usual, document) {
			out.WriteString(document)
		}
	}
	return out.String()
}

// kindAndName matches the kind and the name in a document.
var kindAndName = regexp.MustCompile(`(?s)\nkind: (\S+)\nmetadata:\n  name: (\S+)\n`)

func heading(document string) string {
	m := kindAndName.FindStringSubmatch(document)
	return strings.Join(m[1:], " ")
}

// hubRights are the rights at a hub whose ClusterProfiles the gateway follows, if the hub is not
// also an upstream.
var hubRights = []rbacv1.PolicyRule{{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"clusterprofiles"}, Verbs: []string{"list", "watch"}}}

// TestRights checks that the ClusterRole is what `kubeweir rbac` prints for the same configuration.
func TestRights(t *testing.T) {
	compared := 0
	for _, set := range valueSets(t) {
		var values struct {
			Mode   string
			Config struct {
				CacheAggregatedGroups []string
				Authentication        struct{ RequestHeader struct{ CAFile string } }
				ClusterProfiles       struct{ ProviderFile, Namespace string }
			}
			ClientCA map[string]any
			RBAC     struct {
				Create        *bool
				Resources     []string
				Impersonation string
				ExtraRules    []rbacv1.PolicyRule
			}
		}
		text := valueSet(t, set)
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		if values.Mode == "standalone" || values.RBAC.Create != nil {
			continue
		}
		cfg := config.Default()
		cfg.CacheAggregatedGroups = values.Config.CacheAggregatedGroups
		cfg.Authentication.RequestHeader.CAFile = values.Config.Authentication.RequestHeader.CAFile
		if len(values.ClientCA) > 0 {
			cfg.Authentication.ClientCAFile = "ca.crt"
		}
		if values.RBAC.Impersonation == "" && setting(text, "kube-version", kubeVersion) < "1.36" {
			cfg.Authentication.ClientCAFile = "" // the hub has no impersonated users
		}
		rules, err := rbac.Rules(cfg, rbac.Options{
			Resources: values.RBAC.Resources, UnconstrainedImpersonation: values.RBAC.Impersonation == "unconstrained",
		})
		if err != nil {
			t.Fatal(err)
		}
		kind, want := "ClusterRole", append(rbac.Policy(rules), values.RBAC.ExtraRules...)
		if profiles := values.Config.ClusterProfiles; profiles.ProviderFile != "" {
			want = hubRights
			if profiles.Namespace != "" {
				kind = "Role"
			}
		}
		for _, o := range render(t, "helm4", text) {
			if o.GetKind() != kind {
				continue
			}
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, role.Rules); diff != "" {
				t.Errorf("%s:\n%s", set, diff)
			}
			compared++
		}
	}
	if compared < 20 {
		t.Errorf("only %d roles were compared", compared)
	}
}

// TestMonitoring checks that the alerts and the dashboard are those of deploy/monitoring, apart
// from what values change.
func TestMonitoring(t *testing.T) {
	const monitoring = "../../../deploy/monitoring/"
	var want struct {
		Groups []struct {
			Name  string
			Rules []map[string]any
		}
	}
	text, err := os.ReadFile(monitoring + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	left, total := want.Groups[0].Rules[0]["alert"].(string), 0
	for i := range want.Groups {
		want.Groups[i].Rules = slices.DeleteFunc(want.Groups[i].Rules, func(rule map[string]any) bool { return rule["alert"] == left })
		for _, rule := range want.Groups[i].Rules {
			rule["labels"].(map[string]any)["team"] = "platform"
			total++
		}
	}
	list := render(t, "helm4", "metrics: {renderMode: always, dashboard: {enabled: true}, prometheusRule: {alertLabels: {team: platform}, disabled: ["+left+"]}}")
	got := want
	spec, err := yaml.Marshal(find(t, list, "PrometheusRule", "kubeweir").Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	got.Groups = nil
	if err := yaml.Unmarshal(spec, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || total < 5 {
		t.Errorf("%d alerts\n%s", total, diff)
	}
	dashboard, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedString(find(t, list, "ConfigMap", "kubeweir-dashboard").Object, "data", "kubeweir.json")
	if strings.TrimSpace(data) != strings.TrimSpace(string(dashboard)) {
		t.Error("the dashboard differs from deploy/monitoring")
	}
}

// TestInvalidValuesAreRejected checks that invalid values are an error that names the value.
func TestInvalidValuesAreRejected(t *testing.T) {
	b, err := os.ReadFile("testdata/refused.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(b), "---\n")
	for _, values := range cases[1:] {
		want := setting(values, "want", "")
		t.Run(want, func(t *testing.T) {
			both(t, func(t *testing.T, name string) {
				switch _, err := template(name, values); {
				case want == "":
					t.Fatalf("the case does not name the expected error:\n%s", values)
				case err == nil:
					t.Errorf("accepted:\n%s", values)
				case !strings.Contains(err.Error(), want):
					t.Errorf("got %v\nwant %s\nfor\n%s", err, want, values)
				}
			})
		})
	}
	if len(cases) < 30 {
		t.Errorf("there are only %d cases", len(cases)-1)
	}
}

// TestRestarts checks that a changed rule leaves the pods running while a setting that needs a
// restart replaces them. A standalone reads its file only at the start.
func TestRestarts(t *testing.T) {
	both(t, func(t *testing.T, name string) {
		pods := func(values string) any {
			t.Helper()
			var list []*unstructured.Unstructured
			for _, o := range render(t, name, values) {
				if o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet" {
					list = append(list, o)
				}
			}
			if len(list) != 1 {
				t.Fatalf("%d workloads", len(list))
			}
			pod, _, err := unstructured.NestedMap(list[0].Object, "spec", "template")
			if err != nil {
				t.Fatal(err)
			}
			return pod
		}
		const rule = "rules: [{users: [jane], readOnly: true}]"
		for _, test := range []struct {
			mode, before, after string
			restart             bool
		}{
			{"gateway", "{}", "{" + rule + "}", false},
			{"gateway", "{" + rule + "}", "{consistency: {default: session}, limits: {maxWatches: 5}, log: {level: debug}}", false},
			{"gateway", "{log: {level: debug}}", "{log: {level: debug, format: json}}", true},
			{"gateway", "{}", "{limits: {maxWatches: 5, maxIndexes: 5}}", true},
			{"gateway", "{}", "{profile: dashboard}", true},
			{"standalone", "{log: {level: info}}", "{log: {level: debug}}", true},
		} {
			values := func(config string) string { return "mode: " + test.mode + "\nconfig: " + config + "\n" }
			if restart := !cmp.Equal(pods(values(test.before)), pods(values(test.after))); restart != test.restart {
				t.Errorf("%s: %s to %s: restart %t", test.mode, test.before, test.after, restart)
			}
		}
	})
}
