package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultsOfEncryptionFiles checks that a faulty EncryptionConfiguration ends the start with a sentence that names the
// flag, the file and the fault, and no key.
func TestFaultsOfEncryptionFiles(t *testing.T) {
	dir := t.TempDir()
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
	providers := func(text string) string {
		return head + "resources: [{resources: [secrets], providers: [" + text + "]}]\n"
	}
	for name, c := range map[string][2]string{
		"empty":   {"", "is empty"},
		"junk":    {"junk", "couldn't get version/kind"},
		"syntax":  {head + "  resources: []\n", "line 3: mapping values are not allowed"},
		"nothing": {head + "resources: []\n", "at least one resources is required"},
		"unknown": {providers("{rot13: {}}"), `unknown field "resources[0].providers[0].rot13"`},
		"short":   {providers("{aesgcm: {keys: [{name: a, secret: c2VjcmV0}]}}"), "secret is not of the expected length, got 6"},
		"kms":     {providers(`{kms: {apiVersion: v2, name: a, endpoint: "http://127.0.0.1"}}`), "only unix is supported"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c[0]), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, nil, "standalone", "--in-memory", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
			"--admin-listen", "", "--encryption-provider-config", file)
		if code != 2 || !strings.HasPrefix(stderr, "kubeweir: --encryption-provider-config="+file+": ") || !strings.Contains(stderr, c[1]) ||
			strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "c2VjcmV0") || strings.Contains(stderr, "secret\"") {
			t.Errorf("%s: exit code %d, want 2, and %q\n%s", name, code, c[1], stderr)
		}
	}
}
