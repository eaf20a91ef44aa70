package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// TestReloadKeepsDecisions checks that a cluster that is replaced keeps the decisions about clients.
func TestReloadKeepsDecisions(t *testing.T) {
	const stateConfig = "state: {dir: state, keyFile: key}\noffline: {default: allow}\n"
	s := startSeveral(t, []string{"a"}, entry("a"), "state: {dir: state}\n")
	if err := os.WriteFile(filepath.Join(s.dir, "key"), bytes.Repeat([]byte("k"), state.KeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.change(entry("a", fmt.Sprintf("limits: {maxColdStarts: %d}", 100+i)), stateConfig); err != nil {
			t.Fatal(err)
		}
		m := (*s.several.members.Load())[0]
		known := 0.0
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kubeweir_authorization_offline_entries" {
				known = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if (known > 0) != (i > 0) {
			t.Errorf("change %d: %v decisions are known", i, known)
		}
		nobody, what := &user.DefaultInfo{Name: "nobody"}, authz.Attributes{ResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "secrets"}
		if d, err := m.authorizer.Authorize(t.Context(), nobody, what); err != nil || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		for t.Context().Err() == nil { // until the discovery is saved
			if _, err := os.Stat(filepath.Join(s.dir, "state", "a", "discovery.record")); err == nil {
				break
			}
		}
	}
}
