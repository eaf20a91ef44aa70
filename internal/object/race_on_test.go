//go:build race

package object_test

// raceEnabled is true because sync.Pool drops items at random under the race detector.
const raceEnabled = true
