package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManPages checks that there is a page for each command, with its flags.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var stderr bytes.Buffer
	if code := command(t.Context(), []string{"man", "--dir", dir}, &stderr, &stderr); code != exitOK {
		t.Fatal(code, stderr.String())
	}
	for name, flag := range map[string]string{
		"kubeweir": "version", "kubeweir-gateway": "listen", "kubeweir-standalone": "data-dir", "kubeweir-version": "output", "kubeweir-completion": "help",
		"kubeweir-rbac": "resources", "kubeweir-kubeconfig": "server", "kubeweir-config": "help", "kubeweir-config-check": "skip-files", "kubeweir-config-defaults": "help",
	} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{`.TH "` + strings.ToUpper(name) + `" "1" `, "\n.SH NAME\n" + name + " - ", "\n.SH SYNOPSIS\n", "\n.SH DESCRIPTION\n", "\n.SH EXAMPLE\n", "\n.SH SEE ALSO\n", `\fB--` + flag + `\fP`} {
			if got := strings.ReplaceAll(string(page), `\-`, "-"); !strings.Contains(got, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
	if code := command(t.Context(), []string{"man"}, &stderr, &stderr); code != exitUsage || !strings.Contains(stderr.String(), "--dir must name the folder") {
		t.Error(code, stderr.String())
	}
}
