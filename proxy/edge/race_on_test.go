//go:build race

package edge_test

// raceEnabled says that allocations cannot be counted.
const raceEnabled = true
