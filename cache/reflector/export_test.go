package reflector

import "testing"

// WithoutJitter makes reflectors retry after the mean delays until the end of the test.
func WithoutJitter(t *testing.T) {
	random := jitter
	jitter = func(n int64) int64 { return n / 2 }
	t.Cleanup(func() { jitter = random })
}
