package read

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/object"
)

// TestSelectorKeysAreDistinct checks that values derived from one selection are not used for
// another, although selectors that match nothing and everything print alike.
func TestSelectorKeysAreDistinct(t *testing.T) {
	named := fields.OneTermEqualSelector("metadata.name", "a")
	variants := map[string]int{}
	for i, f := range []object.Filter{
		{},
		{Labels: labels.Nothing()},
		{Fields: fields.Nothing()},
		{Labels: labels.SelectorFromSet(labels.Set{"metadata.name": "a"})},
		{Fields: named},
		{Labels: labels.Nothing(), Fields: named},
	} {
		v := SelectorKey(&f)
		if other, ok := variants[v]; ok {
			t.Errorf("filters %d and %d are both %q", other, i, v)
		}
		variants[v] = i
	}
	if v := SelectorKey(&object.Filter{Labels: labels.Everything(), Fields: fields.Everything()}); v != "" {
		t.Errorf("selectors of all are %q", v)
	}
}
