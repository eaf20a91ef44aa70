package storagetest

import (
	"slices"
	"testing"
)

// Run runs every case on a store of its own: open is called once for each. Cases that a
// store cannot run by what it is (see Store) are left out, not skipped.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open) })
	}
}

// Cases returns the cases of the suite, for callers that run only some of them.
func Cases() []Case {
	return slices.Concat(writeCases(), readCases(), watchCases(), progressCases(), compactCases(), ttlCases(),
		concurrentCases(), lifecycleCases(), restartCases(), faultCases())
}
