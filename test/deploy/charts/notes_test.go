package charts

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNotes checks that Helm's notes say how to reach the console, and with which token.
func TestNotes(t *testing.T) {
	const forward, token, shows = "kubectl -n kubeweir port-forward ", "needs no token", "The console is read-only"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig") // for an empty cluster: Helm 3 always requires a kubeconfig
	if err := kube.WriteKubeconfig(kubeconfig, kube.URL(), kube.ServingCAFile(), kube.AdminToken()); err != nil {
		t.Fatal(err)
	}
	both(t, func(t *testing.T, name string) {
		for values, wanted := range map[string]struct{ has, lacks []string }{
			"{}":                                  {[]string{forward + "deployment/kubeweir 9444", "http://localhost:9444/:", token, shows}, nil},
			"mode: standalone":                    {[]string{forward + "statefulset/kubeweir 9443", "http://localhost:9443/:", token}, nil},
			"config: {console: {enabled: false}}": {nil, []string{"console"}},
			"config: {console: {tokenFile: /t/token}}":                              {[]string{forward + "deployment/kubeweir 9444", "which asks for the token in /t/token:", shows}, []string{token}},
			"{config: {console: {actions: true}}, containerPorts: {metrics: 9555}}": {[]string{forward + "deployment/kubeweir 9555", token}, []string{shows, "9444"}},
		} {
			out, err := helm(t.Context(), name, values, "install", "kubeweir", chart, "--namespace", namespace, "--dry-run=client", "--kubeconfig", kubeconfig, "--values", "-")
			if err != nil {
				t.Errorf("%s: %v", values, err)
			}
			_, notes, _ := strings.Cut(out, "NOTES:")
			for _, text := range wanted.has {
				if !strings.Contains(notes, text) {
					t.Errorf("%s: %q is not in the notes:\n%s", values, text, notes)
				}
			}
			for _, text := range wanted.lacks {
				if strings.Contains(notes, text) {
					t.Errorf("%s: %q is in the notes:\n%s", values, text, notes)
				}
			}
		}
	})
}
