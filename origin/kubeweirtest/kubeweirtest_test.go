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

func TestRelativeProgram(t *testing.T) {
	t.Setenv(programVariable, "bin/kubeweir")
	if _, err := Launch(); err == nil || !strings.Contains(err.Error(), "KUBEWEIR_BIN=bin/kubeweir must be an absolute path") {
		t.Error(err)
	}
}

// TestFlags checks which flags the program gets: its error is them.
func TestFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeweir")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\" >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(programVariable, path)
	const disabled = "--disable-admission-plugins=ServiceAccount"
	for args, want := range map[string]bool{
		"": true, "--enable-admission-plugins=AlwaysPullImages": true, "--controllers ServiceAccount": true,
		"--enable-admission-plugins=AlwaysPullImages,ServiceAccount": false, "--enable-admission-plugins ServiceAccount": false,
	} {
		if _, err := Launch(strings.Fields(args)...); err == nil || strings.Contains(err.Error(), disabled) != want {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, args := range [][]string{{"--data-dir=x"}, {"--data-dir", "x"}, {"--data-dir="}} {
		if _, err := Launch(args...); err == nil || !strings.Contains(err.Error(), "--data-dir cannot be set") {
			t.Errorf("%s: %v", args, err)
		}
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
