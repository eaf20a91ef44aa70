package edge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSidecarAddresses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"0.0.0.0:0":              "only a loopback address",
		":0":                     "only a loopback address",
		"[::]:0":                 "only a loopback address",
		"192.0.2.1:0":            "only a loopback address",
		"example.com:0":          "only a loopback address",
		"127.0.0.1":              "missing port",
		"unix:":                  "needs a path",
		"unix:" + file:           "no socket",
		"unix:" + dir + "/no/so": "listening on unix socket",
		"127.0.0.1:0":            "",
		"127.1.2.3:0":            "",
		"localhost:0":            "",
		"unix:" + dir + "/sock":  "",
		"unix://" + dir + "/so2": "",
	} {
		ln, err := listenSidecar(address)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
		if err == nil {
			_ = ln.Close()
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
