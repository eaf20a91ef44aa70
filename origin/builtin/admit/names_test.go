package admit

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/kubeweir/kubeweir/internal/kubenames"
)

// TestNamesOfSettings compares the names that settings may contain with kube-apiserver's plugins.
func TestNamesOfSettings(t *testing.T) {
	if want := sets.List(sets.New(kubeoptions.AllOrderedPlugins...)); !slices.Equal(kubenames.AdmissionPlugins(), want) {
		t.Errorf("plugins.txt must be\n%s", strings.Join(want, "\n"))
	}
}
