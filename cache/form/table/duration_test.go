package table

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// durations returns values around every boundary of the format, and random ones of all magnitudes.
func durations() []time.Duration {
	values := []time.Duration{0, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}
	around := func(d time.Duration) {
		for _, delta := range []time.Duration{0, 1, time.Millisecond, time.Second, time.Minute, time.Hour} {
			values = append(values, d-delta, d+delta, -d-delta, -d+delta)
		}
	}
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		for n := range time.Duration(200) {
			around(n * unit)
		}
	}
	random := rand.New(rand.NewSource(1))
	for range 20000 {
		d := time.Duration(random.Int63() >> random.Intn(40))
		values = append(values, d, -d)
	}
	return values
}

func TestHumanDurationLikeLibrary(t *testing.T) {
	for _, d := range durations() {
		quoted, err := json.Marshal(duration.HumanDuration(d))
		if err != nil {
			t.Fatal(err)
		}
		got := appendHumanDuration([]byte(`"`), d)
		if got = append(got, '"'); !bytes.Equal(got, quoted) {
			t.Fatalf("%d: got %s, want %s", d, got, quoted)
		}
	}
}

func TestUntilNextTextIsWhenTextChanges(t *testing.T) {
	for _, d := range durations() {
		if d > math.MaxInt64-2*year {
			continue // the sum would overflow
		}
		wait := untilNextText(d)
		if wait <= 0 {
			t.Fatalf("%d: wait %d", d, wait)
		}
		if wait == math.MaxInt64 {
			continue
		}
		now := duration.HumanDuration(d)
		before, after := duration.HumanDuration(d+wait-1), duration.HumanDuration(d+wait)
		if before != now || after == now {
			t.Fatalf("%d (%s): %s just before, %s after %d", d, now, before, after, wait)
		}
	}
}
