package origintest

import (
	"log/slog"
	"testing"
	"time"
)

// BenchmarkStart is the time from nothing to an API that serves, and that of its end.
func BenchmarkStart(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	var stopping time.Duration
	for b.Loop() {
		s, err := start(b.Context(), Options{}, log)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		stop(s)
		stopping += time.Since(began)
	}
	b.ReportMetric(float64(stopping.Milliseconds())/float64(b.N), "ms-stop/op")
}
