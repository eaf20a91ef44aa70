package kubeweirtest

import (
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
