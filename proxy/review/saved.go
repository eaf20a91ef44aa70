package review

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Fit divides entries into those that fit into size bytes and the rest. The first entries of each
// user fit, and a user with many entries leaves room for users with few. of returns the user and
// the size of an entry.
func Fit[E any](entries []E, size int, of func(E) (user string, size int)) (fit, rest []E) {
	type sized struct {
		entry            E
		size, cumulative int // cumulative: with the user's entries before it
	}
	list, used := make([]sized, len(entries)), make(map[string]int)
	for i, entry := range entries {
		user, n := of(entry)
		used[user] += n
		list[i] = sized{entry, n, used[user]}
	}
	slices.SortStableFunc(list, func(a, b sized) int { return cmp.Compare(a.cumulative, b.cumulative) })
	for _, e := range list {
		if size -= e.size; size >= 0 {
			fit = append(fit, e.entry)
		} else {
			rest = append(rest, e.entry)
		}
	}
	return fit, rest
}

// JSONSize returns the size of v in a JSON array.
func JSONSize(v any) int {
	encoded, _ := json.Marshal(v) // without an error for what Fit is used with
	return len(encoded) + len(",")
}

// Age returns how long ago a review was made. ok is false if that is in the future or not less than
// keep ago.
func Age(made time.Time, keep time.Duration) (age time.Duration, ok bool) {
	age = time.Since(made)
	return age, age >= 0 && age < keep
}
