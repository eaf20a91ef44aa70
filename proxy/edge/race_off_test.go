//go:build !race

package edge

// raceEnabled says that allocations cannot be counted.
const raceEnabled = false
