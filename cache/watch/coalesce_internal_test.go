package watch

import (
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/watchmux"
)

// TestDeliveryDelaysTheNext checks how long a delivery delays the next one.
func TestDeliveryDelaysTheNext(t *testing.T) {
	for _, test := range []struct {
		rate, bytes int64
		takes       time.Duration
	}{
		{0, 1 << 40, 0},
		{1000, 0, 0},
		{1000, 500, time.Second / 2},
		{1000, 2000, 2 * time.Second},
		{1000, 1 << 62, watchmux.HoldFor},
		{1 << 62, 1 << 62, time.Second},
	} {
		if takes := (&Pace{Coalesce: time.Second / 2, BytesPerSecond: test.rate}).takes(test.bytes); takes != test.takes {
			t.Errorf("%d bytes at %d a second: %v", test.bytes, test.rate, takes)
		}
	}
}
