package testbed

import (
	"errors"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// Installed is realkube.Installed. It skips the test if the program is missing and cannot be
// installed.
func Installed(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := realkube.Installed(t.Context(), program, pkg)
	installed(t, err)
	return path
}

// Install is realkube.Install. It skips the test if packages cannot be installed.
func Install(t testing.TB, pkg string) {
	t.Helper()
	installed(t, realkube.Install(t.Context(), pkg))
}

func installed(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, realkube.ErrCannotInstall):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}
