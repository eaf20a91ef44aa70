// Package bubble runs tests in a bubble of testing/synctest.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test. Under the race detector the test has one processor meanwhile, and so have those beside it: two
// timers of a bubble that fire on two threads at once share what the detector keeps of a thread, so that it reads past
// it and the process ends by a SIGSEGV (https://go.dev/issue/78156, not mended in go1.26). With one processor timers
// fire one after another.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if raceEnabled {
		takeProcessors()
		defer giveProcessors()
	}
	synctest.Test(t, f)
}

// processors is of the process, as GOMAXPROCS is.
var processors struct {
	sync.Mutex
	bubbles int // open now
	before  int // GOMAXPROCS before the first of them
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
