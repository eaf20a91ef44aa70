package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestClusters: each has the settings of the top level, of the file and of the flags, but for what it says itself.
func TestClusters(t *testing.T) {
	g, err := Parse([]string{"--config", "testdata/clusters.good.yaml", "--max-watches", "12", "--max-requests-inflight", "13", "--state-dir", "/var/state"})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Clusters) != 2 {
		t.Fatalf("%d clusters", len(g.Clusters))
	}
	berlin, lab := &g.Clusters[0], &g.Clusters[1]
	if berlin.Name != "berlin" || !berlin.PathPrefix || !slices.Equal(berlin.Hosts, []string{"berlin.example.com", "10.0.0.7"}) ||
		berlin.Kubeconfig != "testdata/files/kubeconfig" || berlin.Context != "staging" {
		t.Errorf("%+v", berlin)
	}
	if lab.Name != "lab" || lab.PathPrefix || lab.Kubeconfig != "testdata/files/kubeconfig" || lab.Context != "" {
		t.Errorf("%+v", lab)
	}
	if rules := berlin.Rules; berlin.Consistency.Default != Session || len(rules) != 1 || rules[0].Users[0] != "bob" {
		t.Errorf("berlin: %+v, %+v", berlin.Consistency, rules)
	}
	if rules := lab.Rules; lab.Consistency.Default != Strict || len(rules) != 1 || rules[0].Users[0] != "alice" {
		t.Errorf("lab: %+v, %+v", lab.Consistency, rules)
	}
	if !berlin.Authentication.Anonymous || berlin.Authentication.ClientCAFile != "" || lab.Authentication.Anonymous || lab.Authentication.ClientCAFile != "testdata/files/ca.crt" {
		t.Error("identity is not what each says")
	}
	if berlin.Limits.MaxWatches != 12 || lab.Limits.MaxWatches != 12 || berlin.Limits.MaxInFlight != 13 || lab.Limits.MaxInFlight != 7 {
		t.Errorf("limits: %+v, %+v", berlin.Limits, lab.Limits)
	}
	if berlin.State.Dir != "/var/state/berlin" || lab.State.Dir != "/var/state/lab" {
		t.Errorf("state: %s, %s", berlin.State.Dir, lab.State.Dir)
	}
	if berlin.Clusters != nil || lab.Clusters != nil {
		t.Error("a cluster has clusters")
	}
}

// TestClusterWithoutPlace: a cluster needs a kubeconfig, its own or that of the top level.
func TestClusterWithoutPlace(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("clusters:\n- name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Parse([]string{"--config", file})
	if err == nil || err.Error() != file+":2: clusters[0]: kubeconfig is not set and this is not a pod; give the kubeconfig of the cluster" {
		t.Error(err)
	}
	if _, err := Parse([]string{"--config", file, "--kubeconfig", "testdata/files/kubeconfig"}); err != nil {
		t.Error(err)
	}
}

// TestSameClusters: what a cluster is asked for by, and what is the process's, makes no other cluster of it.
func TestSameClusters(t *testing.T) {
	parse := func(content string) *Gateway {
		file := filepath.Join(t.TempDir(), "gateway.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		inPod(t)
		g, err := Parse([]string{"--config", file})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	const base = "clusters:\n- name: a\n"
	old := parse(base)
	for content, want := range map[string]struct {
		same    bool
		process []string
	}{
		base: {true, nil},
		base + "  hosts: [a.example]\n  pathPrefix: false\n": {true, nil},
		base + "listen: 127.0.0.1:1\nlog: {level: debug}\n":  {true, []string{"listen"}},
		base + "  dropManagedFields: [pods]\n":               {false, nil},
		base + "limits: {maxWatches: 5}\n":                   {true, nil},
		base + "  rules: [{users: [x], block: true}]\n":      {true, nil},
		base + "limits: {maxIndexes: 5}\n":                   {false, nil},
		base + "limits: {maxConnections: 5}\n":               {true, []string{"limits.maxConnections"}},
		"clusters:\n- name: b\n":                             {false, nil},
	} {
		changed := parse(content)
		if got := old.Clusters[0].Same(&changed.Clusters[0]); got != want.same {
			t.Errorf("%s: the same: %v", content, got)
		}
		if _, _, waiting, err := old.Reload(changed); !slices.Equal(waiting, want.process) || err != nil {
			t.Errorf("%s: %v need a restart, %v", content, waiting, err)
		}
	}
}

// TestReloadOfAMixture: live settings that do not go with those that need a restart are rejected, although the file is
// good as a whole.
func TestReloadOfAMixture(t *testing.T) {
	inPod(t)
	old, err := Parse([]string{"--consistency=session", "--upstream-ping-interval=30s"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := Parse([]string{"--consistency=session", "--upstream-ping-interval=5s", "--max-staleness=10s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := old.Reload(next); err == nil || !strings.Contains(err.Error(), "max-staleness") || !strings.Contains(err.Error(), "timeouts.upstreamPing needs a restart") {
		t.Error(err)
	}
	if _, _, _, err := next.Reload(next); err != nil {
		t.Error(err)
	}
}

// TestProcessPaths: each is a setting or a group of them, so that none outlives its setting.
func TestProcessPaths(t *testing.T) {
	settings := Default().program().settings()
	for _, path := range slices.Concat(processPaths, livePaths) {
		if !slices.ContainsFunc(settings, func(s setting) bool { return s.path == path || strings.HasPrefix(s.path, path+".") }) {
			t.Errorf("%s is no setting", path)
		}
	}
	for _, s := range servingSettings(&ServingTimeouts{}).settings {
		if !OfProcess(s.path) {
			t.Errorf("%s, of the connections of clients, is not the process's", s.path)
		}
	}
}

// TestCheckClusters: all that is wrong with the clusters of a file is told at a time.
func TestCheckClusters(t *testing.T) {
	checked, err := CheckInput(strings.NewReader("clusters:\n- name: A\n- name: b\n  hosts: [\"\"]\n  limits: {maxIndexes: 0}\n- {}\n"), "gateway", true)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, err := range checked.Errors {
		got = append(got, err.Error())
	}
	want := []string{
		`standard input:2: clusters[0].name must be at most 63 lowercase letters, digits and '-', not "A"`,
		`standard input:4: clusters[1].hosts[0] must be a host name of lowercase letters, digits, '-' and '.', without port, not ""`,
		`standard input:5: clusters[1].limits.maxIndexes must be at least 1, not 0`,
		`standard input:6: clusters[2] has no name; add one, such as name: berlin`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
