package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// namespacedView returns a snapshot of objects in namespaces.
func namespacedView(tb testing.TB, namespaces []string, each int) *Snapshot {
	tb.Helper()
	schema, v := object.CustomSchema(nil), &Snapshot{tree: NewTree()}
	for _, namespace := range namespaces {
		for i := range each {
			o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":"o%d","resourceVersion":"1"}}`, namespace, i))
			if err != nil {
				tb.Fatal(err)
			}
			v.tree.Set(o)
		}
	}
	return v
}

// TestNamespaceSetsAreVisitedInOrder checks that the objects of random sets of namespaces are
// visited in key order from any key on, and no others. The names contain the characters around the
// "/" of keys.
func TestNamespaceSetsAreVisitedInOrder(t *testing.T) {
	namespaces := []string{"a", "a-", "a-b", "a0", "aa", "b", "b-1", "b1", "c", "zz"}
	v := namespacedView(t, namespaces, 3)
	var keys []string
	v.Ascend("", "", func(o *object.Object) bool { keys = append(keys, o.Key); return true })
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		some := slices.Clone(append(namespaces, "not-there"))
		random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		f := &object.Filter{Within: object.NewNamespaces(some[:random.IntN(len(some)+1)], false)}
		if random.IntN(4) == 0 {
			f.Fields = fields.OneTermEqualSelector("metadata.namespace", some[0])
		}
		from := ""
		if random.IntN(3) > 0 {
			from = keys[random.IntN(len(keys))][:1+random.IntN(3)] + []string{"", "\x00", "/", "0"}[random.IntN(4)]
		}
		var want, got []string
		for _, key := range keys {
			o := v.Get(key)
			if key >= from && f.Within.Has(o.Namespace) && (f.Fields == nil || o.Namespace == some[0]) {
				want = append(want, key)
			}
		}
		stop := random.IntN(len(keys))
		if len(want) > stop {
			want = want[:stop+1]
		}
		v.AscendNamespaces(f, from, func(o *object.Object) bool {
			got = append(got, o.Key)
			return len(got) <= stop
		})
		if !slices.Equal(got, want) {
			t.Fatalf("%q in %q from %q: %q, want %q", f.Fields, f.Within.Keys, from, got, want)
		}
	}
}

// TestNamespaceObjectsAreFoundByName checks that Namespace objects are found by name.
func TestNamespaceObjectsAreFoundByName(t *testing.T) {
	schema, v := object.CustomSchema(nil), &Snapshot{tree: NewTree()}
	for _, name := range []string{"a", "a-b", "aa", "b", "c"} {
		o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"1"}}`, name))
		if err != nil {
			t.Fatal(err)
		}
		v.tree.Set(o)
	}
	f := &object.Filter{Within: object.NewNamespaces([]string{"c", "a-b", "a", "a", "gone"}, true)}
	for from, want := range map[string]string{"": "[a a-b c]", "a": "[a a-b c]", "a\x00": "[a-b c]", "a-b\x00": "[c]", "c\x00": "[]"} {
		got := []string{}
		v.AscendNamespaces(f, from, func(o *object.Object) bool { got = append(got, o.Name); return true })
		if fmt.Sprint(got) != want {
			t.Errorf("from %q: %v, want %s", from, got, want)
		}
	}
	if o := v.Get("b"); f.Matches(o) || !f.Matches(v.Get("c")) {
		t.Error("the filter matches other objects")
	}
}
