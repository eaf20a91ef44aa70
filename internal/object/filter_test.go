package object_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/object"
)

// thing returns a custom object with labels and one selectable field.
func thing(t testing.TB, s *object.Schema, ns, name string, l map[string]string, color string) *object.Object {
	t.Helper()
	var pairs []string
	for k, v := range l {
		pairs = append(pairs, fmt.Sprintf("%q:%q", k, v))
	}
	raw := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"resourceVersion":"1","labels":{%s}},"spec":{"color":%q}}`,
		ns, name, strings.Join(pairs, ","), color)
	return decode(t, s, api.JSON, []byte(raw))
}

// TestFilterAgrees compares filters with apimachinery's selectors on random selectors and objects.
func TestFilterAgrees(t *testing.T) {
	s := object.CustomSchema([]string{".spec.color"})
	rng := rand.New(rand.NewSource(1))
	values := []string{"", "a", "b", "1", "2", "10", "-5", "+3", "x1", "9223372036854775807", "9223372036854775808", "-9223372036854775808"}
	pick := func(from []string) string { return from[rng.Intn(len(from))] }
	some := func() string {
		var out []string
		for range 1 + rng.Intn(12) {
			out = append(out, pick([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "1", "2"}))
		}
		return strings.Join(out, ",")
	}
	labelTerm := func() string {
		k := pick([]string{"k", "l", "m.io/n"})
		switch rng.Intn(9) {
		case 0:
			return k + "=" + pick([]string{"a", "b", "1", ""})
		case 1:
			return k + "!=" + pick([]string{"a", "b", "1", ""})
		case 2:
			return k + " in (" + some() + ")"
		case 3:
			return k + " notin (" + some() + ")"
		case 4:
			return k
		case 5:
			return "!" + k
		case 6:
			return k + ">" + pick([]string{"1", "5", "9223372036854775807"})
		case 7:
			return k + "<" + pick([]string{"1", "5"})
		default:
			return k + "==b"
		}
	}
	fieldTerm := func() string {
		return pick([]string{"metadata.name", "metadata.namespace", "spec.color"}) + pick([]string{"=", "!=", "=="}) + pick([]string{"a", "b", "", "1"})
	}
	matched := 0
	for range 2500 {
		var lt, ft []string
		for range rng.Intn(3) {
			lt = append(lt, labelTerm())
		}
		for range rng.Intn(3) {
			ft = append(ft, fieldTerm())
		}
		labelSel, err := labels.Parse(strings.Join(lt, ","))
		if err != nil {
			t.Fatal(err)
		}
		fieldSel, err := fields.ParseSelector(strings.Join(ft, ","))
		if err != nil {
			t.Fatal(err)
		}
		ns, name := pick([]string{"", "", "a"}), pick([]string{"", "", "b"})
		f, err := object.NewFilter(s, ns, name, labelSel, fieldSel)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			l := labels.Set{}
			for _, k := range []string{"k", "l", "m.io/n"} {
				if rng.Intn(3) > 0 {
					l[k] = pick(values)
				}
			}
			fieldSet := fields.Set{"metadata.name": pick([]string{"a", "b", "1"}), "metadata.namespace": pick([]string{"", "a", "b"}), "spec.color": pick(values)}
			o := thing(t, s, fieldSet["metadata.namespace"], fieldSet["metadata.name"], l, fieldSet["spec.color"])
			want := labelSel.Matches(l) && fieldSel.Matches(fieldSet) && (ns == "" || ns == o.Namespace) && (name == "" || name == o.Name)
			if got := f.Matches(o); got != want {
				t.Fatalf("ns=%q name=%q %q %q on %v %v: %v, want %v", ns, name, labelSel, fieldSel, l, fieldSet, got, want)
			}
			if want {
				matched++
				checkEqualities(t, f, o)
			}
		}
	}
	if matched < 500 {
		t.Errorf("only %d matches: the test shows little", matched)
	}
}

// checkEqualities checks that objects that match a filter satisfy each of its equality terms.
func checkEqualities(t *testing.T, f *object.Filter, o *object.Object) {
	t.Helper()
	for _, e := range f.Equalities() {
		var value string
		switch e.Kind {
		case object.NameTerm:
			value = o.Name
		case object.NamespaceTerm:
			value = o.Namespace
		case object.LabelTerm:
			value, _ = o.Labels.Lookup(e.Key)
		case object.FieldTerm:
			value = o.Fields[e.Field]
		}
		found := false
		for _, v := range e.Values {
			found = found || v == value
		}
		if !found {
			t.Fatalf("%+v not fulfilled by %+v", e, o)
		}
	}
}

func TestEqualities(t *testing.T) {
	s := object.SchemaFor(podResource)
	many := "a in (" + strings.TrimSuffix(strings.Repeat("x%d,", 17), ",") + ")"
	n := make([]any, 17)
	for i := range n {
		n[i] = i
	}
	for _, c := range []struct {
		ns, name, labels, fields string
		want                     []object.Equality
	}{
		{"", "", "", "", nil},
		{"", "", "a!=b,!c,d,e notin (f)", "spec.nodeName!=x", nil},
		{"", "", fmt.Sprintf(many, n...), "", nil},
		{"n", "p", "", "", []object.Equality{{Kind: object.NameTerm, Values: []string{"p"}}, {Kind: object.NamespaceTerm, Values: []string{"n"}}}},
		{"n", "", "a=b,c in (e,d,e)", "spec.host=x,metadata.name=y,metadata.namespace=z,status.phase==", []object.Equality{
			{Kind: object.NameTerm, Values: []string{"y"}},
			{Kind: object.FieldTerm, Key: "spec.nodeName", Field: 0, Values: []string{"x"}},
			{Kind: object.FieldTerm, Key: "status.phase", Field: 5, Values: []string{""}},
			{Kind: object.LabelTerm, Key: "a", Values: []string{"b"}},
			{Kind: object.LabelTerm, Key: "c", Values: []string{"d", "e"}},
			{Kind: object.NamespaceTerm, Values: []string{"z"}},
			{Kind: object.NamespaceTerm, Values: []string{"n"}},
		}},
	} {
		f := filter(t, s, c.ns, c.name, c.labels, c.fields)
		if got := f.Equalities(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v:\n got %+v\nwant %+v", c, got, c.want)
		}
	}
	if got := (*object.Filter)(nil).Equalities(); got != nil {
		t.Errorf("nil filter: %v", got)
	}
}

func TestFilterSpecialCases(t *testing.T) {
	s := object.CustomSchema(nil)
	o := thing(t, s, "ns", "name", nil, "")
	must := func(l labels.Selector, f fields.Selector) *object.Filter {
		out, err := object.NewFilter(s, "", "", l, f)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, c := range map[string]struct {
		f                         *object.Filter
		matches, empty, selective bool
	}{
		"nil":            {nil, true, true, false},
		"zero":           {&object.Filter{}, true, true, false},
		"everything":     {must(labels.Everything(), fields.Everything()), true, true, false},
		"no labels":      {must(labels.Nothing(), nil), false, false, true},
		"no fields":      {must(nil, fields.Nothing()), false, false, true},
		"namespace":      {filter(t, s, "ns", "", "", ""), true, false, false},
		"name":           {filter(t, s, "", "name", "", ""), true, false, false},
		"other name":     {filter(t, s, "", "other", "", ""), false, false, false},
		"selector":       {filter(t, s, "", "", "!a", ""), true, false, true},
		"field selector": {filter(t, s, "", "", "", "metadata.name!=x"), true, false, true},
	} {
		if c.f.Matches(o) != c.matches || c.f.Empty() != c.empty || c.f.Selective() != c.selective {
			t.Errorf("%s: matches %v, empty %v, selective %v", name, c.f.Matches(o), c.f.Empty(), c.f.Selective())
		}
	}
	if _, err := object.NewFilter(s, "", "", nil, fields.OneTermEqualSelector("spec.color", "x")); err == nil {
		t.Error("unknown field label accepted")
	}
}

func TestFilterIsMutable(t *testing.T) {
	s := object.CustomSchema([]string{".spec.color"})
	for selectors, want := range map[[2]string]bool{
		{"", ""}: false, {"", "metadata.name=a,metadata.namespace!=b"}: false,
		{"k", ""}: true, {"", "spec.color=red"}: true, {"", "metadata.name=a,spec.color!=red"}: true,
	} {
		l, err := labels.Parse(selectors[0])
		if err != nil {
			t.Fatal(err)
		}
		f, err := object.NewFilter(s, "ns", "a", l, fields.ParseSelectorOrDie(selectors[1]))
		if err != nil {
			t.Fatal(err)
		}
		if f.IsMutable() != want {
			t.Errorf("%q: %t", selectors, f.IsMutable())
		}
	}
	f, err := object.NewFilter(s, "", "", labels.Nothing(), nil)
	if err != nil || f.IsMutable() || (*object.Filter)(nil).IsMutable() {
		t.Error("nothing, or everything, depends on the state")
	}
}

// TestFilterAllocations checks that no operator allocates.
func TestFilterAllocations(t *testing.T) {
	s := object.SchemaFor(podResource)
	o := decode(t, s, api.JSON, encodingtest.Raw(t, api.JSON, encodingtest.Pod(7)))
	f := filter(t, s, "team-7", "", "tier=backend,tier in (a,b,backend),app.kubernetes.io/name notin (x),tier,!y,tier!=z", "spec.nodeName=node-7,status.phase!=Failed")
	gt := filter(t, s, "", "", "tier>5", "")
	if !f.Matches(o) || gt.Matches(o) {
		t.Fatal("filters match wrongly")
	}
	if n := testing.AllocsPerRun(100, func() { f.Matches(o); gt.Matches(o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
