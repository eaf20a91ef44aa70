package object

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubeweir/kubeweir/internal/shard"
)

// Filter selects objects of one collection. Its exported fields say what was requested; NewFilter
// compiles them, so they must not be changed afterwards. A nil *Filter matches everything. Filters
// are safe for concurrent use.
type Filter struct {
	// Namespace and Name restrict to one namespace and to one name; "" is any.
	Namespace, Name string
	// Labels and Fields are the selectors as given; nil selects everything.
	Labels labels.Selector
	Fields fields.Selector
	// Shard is the part of the collection to select, nil for all of it. It is set after NewFilter,
	// before the filter is used.
	Shard *shard.Selector
	// Within are the namespaces that are visible, nil for all of them. It is set after NewFilter,
	// before the filter is used.
	Within *Namespaces

	// never is set if the selectors cannot match any object.
	never bool
	// labels and fields are what Matches checks; name and namespace terms of the
	// field selector are among fields.
	labels []labelTerm
	fields []fieldTerm
}

type labelTerm struct {
	op     selection.Operator // In, NotIn, Exists, DoesNotExist, GreaterThan, LessThan
	key    string
	values []string // sorted
	bound  int64    // of GreaterThan and LessThan
}

// fieldTerm requires that a field has, or does not have, the one value of its Equality.
type fieldTerm struct {
	Equality
	equal bool
}

// MaxTerms is the maximum number of terms of a Filter's selectors. It limits the cost that a client
// can cause per object of a list and per event of a watch.
const MaxTerms = 100

// NewFilter compiles a filter for objects of schema. The selectors may be nil. It fails if
// Schema.CanonicalField rejects a field label, or if there are more than MaxTerms terms; the caller
// then forwards the request.
func NewFilter(schema *Schema, namespace, name string, labelSel labels.Selector, fieldSel fields.Selector) (*Filter, error) {
	f := &Filter{Namespace: namespace, Name: name, Labels: labelSel, Fields: fieldSel}
	if labelSel != nil {
		f.addLabels(labelSel)
	}
	if fieldSel != nil {
		if err := f.addFields(schema, fieldSel); err != nil {
			return nil, err
		}
	}
	if n := f.Terms(); n > MaxTerms {
		return nil, fmt.Errorf("selectors have %d terms, the limit is %d", n, MaxTerms)
	}
	return f, nil
}

func (f *Filter) addLabels(sel labels.Selector) {
	requirements, selectable := sel.Requirements()
	if !selectable {
		f.never = true
		return
	}
	for i := range requirements {
		r := &requirements[i]
		values := r.ValuesUnsorted()
		slices.Sort(values)
		t := labelTerm{op: r.Operator(), key: r.Key(), values: slices.Compact(values)}
		switch t.op {
		case selection.Equals, selection.DoubleEquals:
			t.op = selection.In
		case selection.NotEquals:
			t.op = selection.NotIn
		case selection.GreaterThan, selection.LessThan:
			t.bound, _ = parseInt(t.values[0]) // NewRequirement insists on one integer
		}
		f.labels = append(f.labels, t)
	}
}

func (f *Filter) addFields(schema *Schema, sel fields.Selector) error {
	requirements := sel.Requirements()
	if len(requirements) == 0 && !sel.Empty() {
		f.never = true // fields.Nothing()
		return nil
	}
	for _, r := range requirements {
		label, ok := schema.CanonicalField(r.Field)
		if !ok {
			return fmt.Errorf("field label not supported: %s", r.Field)
		}
		e := Equality{Kind: FieldTerm, Key: label, Values: []string{r.Value}}
		switch label {
		case fieldName:
			e.Kind, e.Key = NameTerm, ""
		case fieldNamespace:
			e.Kind, e.Key = NamespaceTerm, ""
		default:
			e.Field = slices.Index(schema.Fields, label)
		}
		f.fields = append(f.fields, fieldTerm{e, r.Operator != selection.NotEquals})
	}
	return nil
}

// Empty reports whether the filter matches everything.
func (f *Filter) Empty() bool {
	return f == nil || f.Namespace == "" && f.Name == "" && !f.Selective()
}

// Selective reports whether more than the namespace and the name restrict the filter:
// label or field terms, a shard, or some namespaces.
func (f *Filter) Selective() bool {
	return f.HasTerms() || f != nil && (f.Shard != nil || f.Within != nil)
}

// WithinID returns the ID of Within, "" for all namespaces.
func (f *Filter) WithinID() string {
	if f == nil || f.Within == nil {
		return ""
	}
	return f.Within.ID()
}

// IsMutable reports whether a change of an object may change whether the filter selects it, that is,
// whether the filter has terms of labels, or of fields other than the name and the namespace. The
// rest of a filter tells the same of all states of one object.
func (f *Filter) IsMutable() bool {
	return f != nil && !f.never &&
		(len(f.labels) > 0 || slices.ContainsFunc(f.fields, func(t fieldTerm) bool { return t.Kind == FieldTerm }))
}

// HasTerms reports whether the filter has label or field terms.
func (f *Filter) HasTerms() bool {
	return f != nil && (f.never || len(f.labels) > 0 || len(f.fields) > 0)
}

// Terms returns the number of terms in the selectors.
func (f *Filter) Terms() int {
	if f == nil {
		return 0
	}
	return len(f.labels) + len(f.fields)
}

// Matches reports whether the filter selects o. It does not allocate. Its cost is proportional to
// the number of terms and hardly depends on the number of labels.
func (f *Filter) Matches(o *Object) bool {
	if f == nil {
		return true
	}
	if f.never ||
		f.Namespace != "" && f.Namespace != o.Namespace ||
		f.Name != "" && f.Name != o.Name {
		return false
	}
	if f.Shard != nil && !f.Shard.Has(o.ShardHash(f.Shard.Key())) {
		return false
	}
	if f.Within != nil && !f.Within.shows(o) {
		return false
	}
	for i := range f.fields {
		t := &f.fields[i]
		if (t.value(o) == t.Values[0]) != t.equal {
			return false
		}
	}
	for i := range f.labels {
		if !f.labels[i].matches(o.Labels) {
			return false
		}
	}
	return true
}

// value returns o's value of the field.
func (t *fieldTerm) value(o *Object) string {
	switch {
	case t.Kind == NameTerm:
		return o.Name
	case t.Kind == NamespaceTerm:
		return o.Namespace
	case t.Field < len(o.Fields):
		return o.Fields[t.Field]
	}
	return ""
}

// matches follows labels.Requirement.Matches.
func (t *labelTerm) matches(l Labels) bool {
	value, exists := l.Lookup(t.key)
	switch t.op {
	case selection.In:
		return exists && t.has(value)
	case selection.NotIn:
		return !exists || !t.has(value)
	case selection.Exists:
		return exists
	case selection.DoesNotExist:
		return !exists
	case selection.GreaterThan:
		n, ok := parseInt(value)
		return exists && ok && n > t.bound
	case selection.LessThan:
		n, ok := parseInt(value)
		return exists && ok && n < t.bound
	}
	return false
}

// TermKind is the attribute that an Equality is about.
type TermKind uint8

// The kinds of equality terms, the most selective first.
const (
	NameTerm TermKind = iota
	FieldTerm
	LabelTerm
	NamespaceTerm
)

// Equality is a condition that every matching object fulfills: the name, the namespace, the label
// Key or the field Key has one of Values. An index over such values finds all candidates; Matches
// decides.
type Equality struct {
	Kind TermKind
	// Key is the label, or the canonical field label; "" for name and namespace.
	Key string
	// Field is the position in Schema.Fields, for FieldTerm.
	Field int
	// Values are one value, or those of a set-based requirement, each once.
	// They are shared and must not be changed.
	Values []string
}

// maxEqualityValues is the largest `in` set that counts as an equality term:
// more entries in an index than this cost more than they save.
const maxEqualityValues = 16

// Equalities returns the equality terms, the most selective kinds first: name, fields, labels,
// namespace; within a kind in the order of the selector. It is empty if the filter has only
// inequalities, or no terms at all.
func (f *Filter) Equalities() []Equality {
	if f == nil {
		return nil
	}
	var terms []Equality
	if f.Name != "" {
		terms = append(terms, Equality{Kind: NameTerm, Values: []string{f.Name}})
	}
	for _, t := range f.fields {
		if t.equal {
			terms = append(terms, t.Equality)
		}
	}
	for i := range f.labels {
		t := &f.labels[i]
		if t.op == selection.In && len(t.values) <= maxEqualityValues {
			terms = append(terms, Equality{Kind: LabelTerm, Key: t.key, Values: t.values})
		}
	}
	if f.Namespace != "" {
		terms = append(terms, Equality{Kind: NamespaceTerm, Values: []string{f.Namespace}})
	}
	slices.SortStableFunc(terms, func(a, b Equality) int { return cmp.Compare(a.Kind, b.Kind) })
	return terms
}

// scanValues is the number of values up to which a scan is faster than a binary search.
const scanValues = 8

func (t *labelTerm) has(value string) bool {
	if len(t.values) <= scanValues {
		return slices.Contains(t.values, value)
	}
	_, found := slices.BinarySearch(t.values, value)
	return found
}

// parseInt parses a decimal integer. It checks for other characters first because most label values
// are not integers, and an error of strconv allocates.
func parseInt(s string) (n int64, ok bool) {
	if s == "" || strings.TrimLeft(s, "+-0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
