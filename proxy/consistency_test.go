package proxy

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache"
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
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

func TestModeFor(t *testing.T) {
	pods := &cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	leases := &cache.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}
	c := Consistency{Default: ModeStrict, Rules: []Rule{
		{Match: Match{Resources: []string{"leases.coordination.k8s.io"}}, Mode: ModeStrict},
		{Match: Match{Groups: []string{"dashboards"}, UserAgents: []string{"Headlamp*"}}, Mode: ModeSession},
		{Match: Match{Users: []string{"jane"}}, Mode: ModeSession},
	}}
	jane := &user.DefaultInfo{Name: "jane"}
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"dashboards"}}
	for _, tc := range []struct {
		u     user.Info
		agent string
		res   *cache.Resource
		want  Mode
	}{
		{jane, "kubectl", pods, ModeSession},
		{jane, "kubectl", leases, ModeStrict},
		{joe, "kubectl", pods, ModeStrict},
		{joe, "Headlamp/1", pods, ModeSession},
	} {
		if got := c.modeFor(tc.u, tc.agent, tc.res); got != tc.want {
			t.Errorf("%s with %s on %s: %s", tc.u.GetName(), tc.agent, tc.res.Resource, got)
		}
	}
	if !c.usesSession() || (&Consistency{Default: ModeStrict}).usesSession() {
		t.Error("usesSession")
	}
}
