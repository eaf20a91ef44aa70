// Package steady compares the responses of two servers while the data may change: objects are
// written, and ages in tables grow.
package steady

// tries bounds how often a comparison restarts because the oracle's own response has changed.
const tries = 20

// Compare queries the oracle, the target, and the oracle again. The target is right if its response
// equals one of the oracle's. The comparison restarts only if the two responses of the oracle
// differ, so an intermittently wrong target is still detected.
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
