package groups

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestCreators compares what the creator of an object manages with what the library finds, for objects of every
// built-in kind: empty ones, and ones with more and more in them, at random.
func TestCreators(t *testing.T) {
	types, err := newTypeConverter()
	if err != nil {
		t.Fatal(err)
	}
	p, err := types.parsers()
	if err != nil {
		t.Fatal(err)
	}
	scheme := legacyscheme.Scheme
	funcs := apitesting.FuzzerFuncs
	answered, left := 0, map[string]int{}
	for _, gvk := range slices.SortedFunc(maps.Keys(p.kinds), func(a, b schema.GroupVersionKind) int { return compareKinds(a, b) }) {
		versioned, err := scheme.New(gvk)
		if err != nil {
			continue
		}
		if _, err := meta.Accessor(versioned); err != nil {
			continue
		}
		hub := schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
		if _, err := scheme.New(hub.WithKind(gvk.Kind)); err != nil {
			continue
		}
		for _, reset := range []*fieldpath.Set{nil, fieldpath.NewSet(fieldpath.MakePathOrDie("status"))} {
			c := comparison{gvk: gvk, hub: hub, scheme: scheme}
			if c.creation, err = types.creation(gvk, versioned, reset); err != nil || c.creation == nil {
				t.Fatal(gvk, err)
			}
			filters := map[fieldpath.APIVersion]fieldpath.Filter(nil)
			if reset != nil {
				filters = fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(gvk.GroupVersion().String()): reset})
			}
			c.library, err = managedfields.NewDefaultFieldManager(types, runtime.UnsafeObjectConvertor(scheme), scheme, scheme, gvk, hub, "", filters)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range 26 {
				fill := fuzzer.FuzzerFor(funcs, rand.NewSource(int64(seed)), legacyscheme.Codecs).NilChance(1-float64(seed%13)/12).NumElements(0, 1+seed%7)
				ok, err := c.compare(fill)
				if err != nil {
					t.Errorf("%s, seed %d: %v", gvk, seed, err)
					break
				}
				if ok {
					answered++
				} else {
					left[gvk.Kind]++
				}
			}
		}
	}
	t.Logf("%d answered, left to the library: %v", answered, left)
	if answered < 3000 {
		t.Errorf("%d answered", answered)
	}
}

func compareKinds(a, b schema.GroupVersionKind) int {
	return slices.Compare([]string{a.Group, a.Version, a.Kind}, []string{b.Group, b.Version, b.Kind})
}

type comparison struct {
	gvk      schema.GroupVersionKind
	hub      schema.GroupVersion
	scheme   *runtime.Scheme
	library  *managedfields.FieldManager
	creation interface {
		Fields(runtime.Object) ([]byte, bool)
	}
}

// compare asks both about an object that fill makes; false if it was left to the library.
func (c *comparison) compare(fill *randfill.Filler) (bool, error) {
	object, err := c.scheme.New(c.hub.WithKind(c.gvk.Kind))
	if err != nil {
		return false, err
	}
	fill.Fill(object)
	accessor, err := meta.Accessor(object)
	if err != nil {
		return false, err
	}
	accessor.SetManagedFields(nil)
	// As after decoding.
	versioned, err := c.scheme.ConvertToVersion(object, c.gvk.GroupVersion())
	if err != nil {
		return false, err
	}
	got, ok := c.creation.Fields(versioned)
	if !ok {
		return false, nil
	}
	live, err := c.scheme.New(c.gvk)
	if err != nil {
		return false, err
	}
	managed, err := c.library.Update(live, object, "someone")
	if err != nil {
		return false, err
	}
	accessor, _ = meta.Accessor(managed)
	entries := accessor.GetManagedFields()
	want := metav1.ManagedFieldsEntry{Manager: "someone", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: c.gvk.GroupVersion().String(), FieldsType: "FieldsV1"}
	if len(entries) != 1 {
		return false, fmt.Errorf("the library has %d managers, want 1; %s", len(entries), got)
	}
	want.FieldsV1, want.Time = entries[0].FieldsV1, entries[0].Time
	if want.String() != entries[0].String() {
		return false, fmt.Errorf("entry %v, want %v", want, entries[0])
	}
	if entries[0].FieldsV1.GetRawString() != string(got) {
		return false, fmt.Errorf("fields\n got %s\nwant %s", got, entries[0].FieldsV1.GetRawString())
	}
	return true, nil
}
