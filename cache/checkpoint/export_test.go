package checkpoint

import (
	"testing"
	"time"
)

// SetDiskTimeout limits each wait for a disk that does not respond to d until the end of the test.
func SetDiskTimeout(t *testing.T, d time.Duration) {
	disk, last := diskTimeout, lastSave
	diskTimeout, lastSave = d, d
	t.Cleanup(func() { diskTimeout, lastSave = disk, last })
}
