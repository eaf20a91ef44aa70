package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/config"
)

// TestManPages: a page for each command, with all of its flags.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var stderr bytes.Buffer
	if code := command(t.Context(), []string{"man", "--dir", dir}, &stderr, &stderr); code != exitOK {
		t.Fatal(code, stderr.String())
	}
	for _, name := range []string{
		"kubeweir", "kubeweir-gateway", "kubeweir-standalone", "kubeweir-version", "kubeweir-completion", "kubeweir-rbac", "kubeweir-kubeconfig",
		"kubeweir-config", "kubeweir-config-check", "kubeweir-config-defaults",
	} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".TH \"" + roff(strings.ToUpper(name)) + "\" 1 ", "\n.SH NAME\n" + roff(name) + ` \- `, "\n.SH SYNOPSIS\n", "\n.SH DESCRIPTION\n", "\n.SH EXAMPLES\n", "\n.SH EXIT STATUS\n", "\n.SH SEE ALSO\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "kubeweir-gateway.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range flagSections(subcommand(newRoot(), "gateway")) {
		if !strings.Contains(string(page), "\n.SS "+roff(section.title)+"\n") {
			t.Errorf("no section %s", section.title)
		}
	}
	if want := `\fB\-\-listen\fR \fIhost:port\fR`; !strings.Contains(string(page), want) || config.GatewayFlags().Set().Lookup("listen") == nil {
		t.Errorf("no %s", want)
	}
	if code := command(t.Context(), []string{"man"}, &stderr, &stderr); code != exitUsage || !strings.Contains(stderr.String(), "--dir must name the folder") {
		t.Error(code, stderr.String())
	}
}

func TestRoff(t *testing.T) {
	if got, want := roff("a-b\\\n.c\n'd"), "a\\-b\\e\n\\&.c\n\\(aqd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
