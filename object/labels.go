package object

import (
	"slices"
	"strings"
)

// Label is one label.
type Label struct{ Key, Value string }

// Labels are sorted by Key, each key once.
type Labels []Label

// scanLabels is the number of labels up to which a scan is faster than a binary search. The API
// does not bound the number of labels: 20,000 are 240 KB.
const scanLabels = 16

// Lookup returns the value of a label and whether the object has it.
func (l Labels) Lookup(key string) (value string, exists bool) {
	if len(l) > scanLabels {
		i, _ := slices.BinarySearchFunc(l, key, func(l Label, key string) int { return strings.Compare(l.Key, key) })
		l = l[i:min(i+1, len(l))]
	}
	// Objects have a handful of labels: a scan beats a binary search, and comparing lengths first
	// decides nearly every step.
	for i := range l {
		if l[i].Key == key {
			return l[i].Value, true
		}
	}
	return "", false
}
