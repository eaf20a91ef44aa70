package registry

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks for leaked goroutines. It ignores klog's flusher, which belongs to apiserver.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
