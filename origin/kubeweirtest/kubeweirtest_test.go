package kubeweirtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramMissing(t *testing.T) {
	t.Setenv(programVariable, "")
	t.Setenv("PATH", t.TempDir())
	if _, err := Launch(); err == nil || !strings.Contains(err.Error(), programVariable) {
		t.Error(err)
	}
	t.Setenv(programVariable, filepath.Join(t.TempDir(), "kubeweir"))
	if _, err := Launch(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// TestEnd checks that the log has the last line, without a newline, and the exit status.
func TestEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeweir")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nprintf 'first\\nlast' >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(programVariable, path)
	const log = "it has ended: exit status 3; its log:\nfirst\nlast\nkubeweirtest: the process has ended: exit status 3"
	if _, err := Launch(); err == nil || !strings.HasSuffix(err.Error(), log) {
		t.Error(err)
	}
}
