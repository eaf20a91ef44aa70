package review

import (
	"cmp"
	"slices"
	"time"
)

// Fit divides words into those that fit into size bytes, and the others: of each user the
// first ones fit, and whoever has much leaves room for those who have less. of tells whose
// word it is, and how large.
func Fit[W any](words []W, size int, of func(W) (user string, size int)) (fit, rest []W) {
	type place struct {
		word       W
		size, upTo int // bytes of the word, and of the user's words with it
	}
	places, used := make([]place, len(words)), make(map[string]int)
	for i, word := range words {
		user, n := of(word)
		used[user] += n
		places[i] = place{word, n, used[user]}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.upTo, b.upTo) })
	for _, p := range places {
		if size -= p.size; size >= 0 {
			fit = append(fit, p.word)
		} else {
			rest = append(rest, p.word)
		}
	}
	return fit, rest
}

// EntrySize is about what a word takes beside its strings.
const EntrySize = 256

// JSONSize is how many bytes a string is in JSON, at most.
func JSONSize(s string) int {
	n := len(s) + 3
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' {
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// Age is how long ago something was said; ok is false when that is in the future, or longer
// ago than it counts.
func Age(said time.Time, keep time.Duration) (age time.Duration, ok bool) {
	age = time.Since(said)
	return age, age >= 0 && age < keep
}
