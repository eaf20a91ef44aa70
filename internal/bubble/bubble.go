// Package bubble runs tests in a bubble of testing/synctest.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test. Under the race detector it sets GOMAXPROCS to 1 while the test runs: if
// two timers of a bubble fire on two threads at once, they share the detector's per-thread state,
// so that it reads out of bounds and the process ends with a SIGSEGV (https://go.dev/issue/78156,
// not fixed in go1.26). With one processor timers fire one after another.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if raceEnabled {
		takeProcessors()
		defer giveProcessors()
	}
	synctest.Test(t, f)
}

// processors is shared by all tests, because GOMAXPROCS is.
var processors struct {
	sync.Mutex
	bubbles int // running now
	before  int // GOMAXPROCS before the first bubble
}

func takeProcessors() {
	processors.Lock()
	defer processors.Unlock()
	if processors.bubbles++; processors.bubbles == 1 {
		processors.before = runtime.GOMAXPROCS(1)
	}
}

func giveProcessors() {
	processors.Lock()
	defer processors.Unlock()
	if processors.bubbles--; processors.bubbles == 0 {
		runtime.GOMAXPROCS(processors.before)
	}
}
