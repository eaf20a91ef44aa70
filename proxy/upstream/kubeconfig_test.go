package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadKubeconfigs: what is wrong with the file is said, not what client-go would try
// instead.
func TestBadKubeconfigs(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\n"
	for _, test := range []struct{ content, context, want string }{
		{head, "", "FILE: no current-context; set it, or name a context"},
		{head + "current-context: a\n", "", `FILE: no context "a"`},
		{head + "current-context: a\ncontexts: [{name: a, context: {}}]\n", "b", `FILE: no context "b"`},
		{head + "contexts: [{name: a, context: {cluster: c}}]\n", "a", `FILE: context "a" refers to cluster "c", which does not exist`},
		{"-----BEGIN PRIVATE KEY-----\ns3cr3t\n", "", `error loading config file "FILE": couldn't get version/kind`},
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Options{Kubeconfig: file, Context: test.context}).restConfig()
		if err == nil || strings.ReplaceAll(err.Error(), file, "FILE") != "upstream configuration: "+test.want {
			t.Errorf("%q: %v", test.content, err)
		}
	}
}
