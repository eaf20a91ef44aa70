package policy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"k9s", "k9s", true}, {"k9s", "k9s/v1", false}, {"k9s*", "k9s/v1", true}, {"*", "", true},
		{"*headlamp*", "x headlamp/1 (y)", true}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false},
		{"ab*ba", "aba", false}, {"system:serviceaccount:*:dash", "system:serviceaccount:x:dash", true},
	} {
		if got := globs([]string{c.pattern})[0].matches(c.s); got != c.want {
			t.Errorf("glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

func rulesOfTest() *Compiled {
	return &Compiled{rules: newRules([]Rule{
		{Match: Match{Resources: []string{"leases.coordination.k8s.io"}}, Settings: Settings{Mode: ModeStrict}},
		{Match: Match{Groups: []string{"dashboards"}, UserAgents: []string{"Headlamp*"}}, Settings: Settings{Mode: ModeSession}},
		{Match: Match{Resources: []string{"secrets"}}, Settings: Settings{Offline: No}},
		{Match: Match{Users: []string{"jane"}}, Settings: Settings{Mode: ModeSession, Offline: Yes}},
	}), defaults: Settings{Mode: ModeStrict, Offline: No}}
}

// TestRules: the first rule that matches and has a setting decides that setting.
func TestRules(t *testing.T) {
	r := rulesOfTest()
	jane := &user.DefaultInfo{Name: "jane"}
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"dashboards"}}
	const pods, leases = "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases"
	for _, tc := range []struct {
		u           user.Info
		agent, path string
		want        Settings
	}{
		{jane, "kubectl", pods, Settings{Mode: ModeSession, Offline: Yes}},
		{jane, "kubectl", leases, Settings{Mode: ModeStrict, Offline: Yes}},
		{jane, "kubectl", "/api/v1/secrets", Settings{Mode: ModeSession, Offline: No}},
		{jane, "kubectl", "/api/v1/namespaces/a/secrets/b/status", Settings{Mode: ModeSession, Offline: No}},
		{jane, "kubectl", "/apis/example.com/v1/secrets", Settings{Mode: ModeSession, Offline: Yes}},
		{jane, "kubectl", "/version", Settings{Mode: ModeSession, Offline: Yes}},
		{joe, "kubectl", pods, Settings{Mode: ModeStrict, Offline: No}},
		{joe, "Headlamp/1", pods, Settings{Mode: ModeSession, Offline: No}},
	} {
		info := api.ParseRequestInfo("GET", tc.path, "")
		if got := r.Decide(tc.u, tc.agent, &info); got != tc.want {
			t.Errorf("%s with %s on %s: %+v", tc.u.GetName(), tc.agent, tc.path, got)
		}
	}
	session := func(s *Settings) bool { return s.Mode == ModeSession }
	if none := Compile(Policy{Consistency: Consistency{Default: ModeStrict}}, nil); !r.Any(session) || none.Any(session) {
		t.Error("Any")
	}
}

// BenchmarkRules measures the settings of a request.
func BenchmarkRules(b *testing.B) {
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"developers", "dashboards", "system:authenticated"}}
	info := api.ParseRequestInfo("GET", "/apis/apps/v1/deployments", "")
	for name, r := range map[string]*Compiled{"none": {defaults: Settings{Mode: ModeStrict, Offline: No}}, "four": rulesOfTest()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Decide(joe, "Headlamp/1", &info)
			}
		})
	}
}
