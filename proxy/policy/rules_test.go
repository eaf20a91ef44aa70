package policy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
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

func rulesOfTest() rules {
	return newRules([]Rule{
		{Match: Match{Resources: []string{"leases.coordination.k8s.io"}}, Says: Settings{Mode: ModeStrict}},
		{Match: Match{Groups: []string{"dashboards"}, UserAgents: []string{"Headlamp*"}}, Says: Settings{Mode: ModeSession}},
		{Match: Match{Resources: []string{"secrets"}}, Says: Settings{Offline: No}},
		{Match: Match{Users: []string{"jane"}}, Says: Settings{Mode: ModeSession, Offline: Yes}},
	}, Settings{Mode: ModeStrict, Offline: No})
}

// TestRules: of each setting the first rule that matches and has it decides.
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
		if got := r.decide(tc.u, tc.agent, &info); got != tc.want {
			t.Errorf("%s with %s on %s: %+v", tc.u.GetName(), tc.agent, tc.path, got)
		}
	}
	session := func(s *Settings) bool { return s.Mode == ModeSession }
	if none := newRules(nil, Settings{Mode: ModeStrict}); !r.any(session) || none.any(session) {
		t.Error("any")
	}
}

// BenchmarkRules is what a request costs that rules are looked at for.
func BenchmarkRules(b *testing.B) {
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"developers", "dashboards", "system:authenticated"}}
	info := api.ParseRequestInfo("GET", "/apis/apps/v1/deployments", "")
	for name, r := range map[string]rules{"none": newRules(nil, Settings{Mode: ModeStrict, Offline: No}), "four": rulesOfTest()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.decide(joe, "Headlamp/1", &info)
			}
		})
	}
}
