//go:build race

package object_test

// raceEnabled: under the race detector sync.Pool forgets at random, on purpose.
const raceEnabled = true
