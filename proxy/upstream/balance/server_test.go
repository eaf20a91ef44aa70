package balance

import (
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// TestRamp: a server that has recovered gets its share step by step.
func TestRamp(t *testing.T) {
	var s Server
	now := time.Unix(1000, 0)
	if got := s.load(false, now); got != 1 {
		t.Errorf("a server that was always ready: %v", got)
	}
	s.health.Enter(health.NotReady, now)
	s.health.Enter(health.Ready, now)
	s.short.Store(1)
	for after, want := range map[time.Duration]float64{0: 20, rampTime / 2: 4, rampTime: 2, time.Hour: 2} {
		if got := s.load(false, now.Add(after)); got != want {
			t.Errorf("%v later: %v, want %v", after, got, want)
		}
	}
}
