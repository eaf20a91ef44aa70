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

// TestStates: a state gives way to one that tells more, and to a sign of life.
func TestStates(t *testing.T) {
	for from := Reachable; from <= Silent; from++ {
		for next := Reachable; next <= Silent; next++ {
			d := detector(time.Second, time.Now)
			d.opts.Probe = func() {}
			d.enter(from)
			since := d.since
			d.enter(next)
			want := max(from, next)
			if next == Reachable {
				want = Reachable
			}
			if got := d.State(); got != want || got == from && d.since != since {
				t.Errorf("%d, then %d: %d since %v, want %d", from, next, got, d.since, want)
			}
			if ok, at := d.Reachable(); ok != (want < Unreachable) || !ok && at != d.since {
				t.Errorf("%d: reachable %v since %v", want, ok, at)
			}
		}
	}
}
