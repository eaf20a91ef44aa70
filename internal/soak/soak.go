// Package soak scales random, model, fuzz and fault tests. `make test` tries a small fixed number
// of cases with a fixed seed, `make soak` many with a new seed.
package soak

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const (
	// enabledVariable enables the long form of tests if it is not empty.
	enabledVariable = "KUBEWEIR_SOAK"
	// seedVariable is the seed of random tests, a decimal number.
	seedVariable = "KUBEWEIR_SEED"
)

// Enabled reports whether tests run in their long form.
func Enabled() bool { return os.Getenv(enabledVariable) != "" }

// Cases returns how many cases a test tries: short, or long in a soak.
func Cases(short, long int) int {
	if Enabled() {
		return long
	}
	return short
}

// Seed returns the seed of a random test and logs it: KUBEWEIR_SEED if set, otherwise 1, or a
// random one in a soak.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if s := os.Getenv(seedVariable); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		seed = n
	} else if Enabled() {
		seed = rand.Uint64() //nolint:gosec // what is random is logged
	}
	t.Logf("the seed is %d; set %s to repeat it", seed, seedVariable)
	return seed
}

// Seeds returns the seeds of a test that runs once per seed: short of them, or long in a soak. They
// are consecutive and begin with Seed(t), so that KUBEWEIR_SEED=n makes seed n the first.
func Seeds(t testing.TB, short, long int) []uint64 {
	t.Helper()
	first := Seed(t)
	seeds := make([]uint64, Cases(short, long))
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}
