package health

import (
	"log/slog"
	"testing"
	"time"
)

// TestClockSet: the time of day may be set without anything being taken for silent, or heard
// later than it was: all times that are compared have a monotonic reading.
func TestClockSet(t *testing.T) {
	d := New(Options{
		SilenceTimeout: time.Minute, Probe: func() {},
		Background: Background{Context: t.Context(), Spawn: func(func()) bool { return false }, Log: slog.New(slog.DiscardHandler)},
	})
	d.Responded()
	w := d.Await(func(error) {}, time.Minute)
	defer w.Done(t.Context(), nil)
	for name, at := range map[string]time.Time{"the last sign": d.heard(), "a request's beginning": w.began} {
		if at == at.Round(0) || at.IsZero() {
			t.Errorf("%s is at %v", name, at)
		}
	}
	now := time.Now()
	if at := d.now.at(d.now().UnixNano()); at.Before(now) || at.After(time.Now()) {
		t.Errorf("%v became %v", now, at)
	}
}
