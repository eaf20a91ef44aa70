package security

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// filesWith returns the files of a folder that contain a text, also in base64.
func filesWith(t *testing.T, folder, text string) (found []string) {
	t.Helper()
	// Base64 of a text with a length of a multiple of three is found wherever it begins at such a multiple.
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) { // deleted by a compaction
			return nil
		}
		if bytes.Contains(content, []byte(text)) || bytes.Contains(content, []byte(encoded)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// TestEncryptedDataFolder checks that no file of the data folder has a Secret in plain text: neither its
// first version, nor later ones, nor a deleted one, while the server runs and after it has ended. Without
// encryption, the same search finds them.
func TestEncryptedDataFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: key1, secret: %s}]}
`, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))), 0o600))
	for name, args := range map[string][]string{"encrypted": {"--encryption-provider-config", file}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			ctx := deadline(t, time.Minute)
			dir := t.TempDir()
			s := startStandalone(t, realkube.StandaloneOptions{Dir: dir, ExtraArgs: args})
			cfg := administrator(t, s)
			const secrets = "/api/v1/namespaces/default/secrets"
			values := []string{"first-1fJq8Zt0wXv2", "second-Rk5Lm9Hs3Bd", "deleted-Yp7Nc4Gx6T"}
			for _, value := range values {
				if len(value)%3 != 0 {
					t.Fatalf("%q has %d bytes", value, len(value))
				}
			}
			for _, r := range []struct{ method, path, body string }{
				{http.MethodPost, secrets, `{"metadata":{"name":"kept"},"stringData":{"v":"` + values[0] + `"}}`},
				{http.MethodPut, secrets + "/kept", `{"metadata":{"name":"kept"},"stringData":{"v":"` + values[1] + `"}}`},
				{http.MethodPost, secrets, `{"metadata":{"name":"gone"},"stringData":{"v":"` + values[2] + `"}}`},
				{http.MethodGet, secrets, ""},
				{http.MethodGet, secrets + "/kept", ""},
				{http.MethodDelete, secrets + "/gone", ""},
			} {
				resp, err := request(ctx, t, cfg, r.method, r.path, r.body)
				must(t, err)
				if resp.status >= 300 {
					t.Fatalf("%s %s: %s", r.method, r.path, resp)
				}
			}
			check := func(state string) {
				t.Helper()
				for _, value := range values {
					if found := filesWith(t, s.DataDir(), value); (len(found) > 0) != (args == nil) {
						t.Errorf("%s, %s is in plain text in %q", state, value, found)
					}
				}
			}
			check("while it runs")
			must(t, s.Stop(ctx))
			if args != nil {
				check("after it has ended")
			}
			must(t, s.Start(ctx))
			resp, err := request(ctx, t, cfg, http.MethodGet, secrets+"/kept", "")
			must(t, err)
			if !strings.Contains(resp.body, base64.StdEncoding.EncodeToString([]byte(values[1]))) {
				t.Errorf("after a restart: %s", resp)
			}
			if args == nil {
				return
			}
			must(t, s.Stop(ctx))
			check("after a restart")
			// Without the key, nothing is read.
			cfg = administrator(t, startStandalone(t, realkube.StandaloneOptions{Dir: dir}))
			resp, err = request(ctx, t, cfg, http.MethodGet, secrets+"/kept", "")
			must(t, err)
			if resp.status != http.StatusInternalServerError || !strings.Contains(resp.body, "identity transformer tried to read encrypted data") {
				t.Errorf("without the key: %s", resp)
			}
		})
	}
}
