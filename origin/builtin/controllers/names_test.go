package controllers

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/kubeweir/kubeweir/internal/kubenames"
)

// TestNamesOfSettings compares the names that settings may contain with kube-controller-manager's.
func TestNamesOfSettings(t *testing.T) {
	var want []string
	for _, name := range app.KnownControllers() {
		want = append(want, name, strings.TrimSuffix(name, "-controller"))
	}
	for alias := range app.ControllerAliases() {
		want = append(want, alias)
	}
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(kubenames.Controllers(), want) {
		t.Errorf("controllers.txt must be\n%s", strings.Join(want, "\n"))
	}
}
