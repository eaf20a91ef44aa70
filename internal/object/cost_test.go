package object_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/object"
)

// manyLabels returns n labels in order.
func manyLabels(n int) object.Labels {
	l := make(object.Labels, n)
	for i := range l {
		l[i] = object.Label{Key: fmt.Sprintf("k%07d", i), Value: fmt.Sprint(i)}
	}
	return l
}

// TestLookUp checks that, with few labels and with many, each is found and nothing else.
func TestLookUp(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 1000} {
		l := manyLabels(n)
		for i := range l {
			if v, ok := l.Lookup(l[i].Key); !ok || v != fmt.Sprint(i) {
				t.Fatalf("%d labels: %s is %q, %v", n, l[i].Key, v, ok)
			}
			if _, ok := l.Lookup(l[i].Key + "x"); ok {
				t.Fatalf("%d labels: found a missing label", n)
			}
		}
		for _, key := range []string{"", "a", "z"} {
			if _, ok := l.Lookup(key); ok {
				t.Errorf("%d labels: %q found", n, key)
			}
		}
	}
}

// TestMaxTerms checks that clients can cause matches only of bounded cost.
func TestMaxTerms(t *testing.T) {
	selector := func(n int) labels.Selector {
		terms := make([]string, n)
		for i := range terms {
			terms[i] = fmt.Sprintf("!k%07d", i)
		}
		s, err := labels.Parse(strings.Join(terms, ","))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	f, err := object.NewFilter(object.CustomSchema(nil), "", "", selector(object.MaxTerms), nil)
	if err != nil || f.Terms() != object.MaxTerms {
		t.Errorf("%d terms: %v", object.MaxTerms, err)
	}
	if _, err := object.NewFilter(object.CustomSchema(nil), "", "", selector(object.MaxTerms+1), nil); err == nil {
		t.Error("one more term is accepted")
	}
}

// BenchmarkMatchMany is the worst case that a client can choose: a selector with the maximum number
// of terms on an object with very many labels.
func BenchmarkMatchMany(b *testing.B) {
	terms := make([]string, object.MaxTerms)
	for i := range terms {
		terms[i] = fmt.Sprintf("!k%07dx", i*200)
	}
	s, err := labels.Parse(strings.Join(terms, ","))
	if err != nil {
		b.Fatal(err)
	}
	f, err := object.NewFilter(object.CustomSchema(nil), "", "", s, nil)
	if err != nil {
		b.Fatal(err)
	}
	o := &object.Object{Labels: manyLabels(20000)}
	b.ReportAllocs()
	for b.Loop() {
		if !f.Matches(o) {
			b.Fatal("no match")
		}
	}
}
