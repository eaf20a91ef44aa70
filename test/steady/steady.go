// Package steady compares the answers of two servers while what they answer may change: objects are written, and ages
// in tables grow.
package steady

// tries bounds how often a comparison starts over because the oracle's own answer has changed.
const tries = 20

// Compare asks the oracle, the target, and the oracle again. The answers are the same if the target's is equal to one of
// the oracle's. Only an oracle that contradicts itself is asked anew, so a target that is wrong now and then is found.
func Compare[T any](oracle, target func() T, equal func(a, b T) bool) (want, got T, same bool) {
	for range tries {
		want, got = oracle(), target()
		if equal(want, got) {
			return want, got, true
		}
		again := oracle()
		if equal(again, got) {
			return again, got, true
		}
		if equal(want, again) {
			break
		}
	}
	return want, got, false
}
