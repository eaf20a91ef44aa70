package server

import "testing"

// BenchmarkNew builds a server, for which nothing is written or read.
func BenchmarkNew(b *testing.B) {
	opts := build(b).opts
	for b.Loop() {
		s, err := New(opts)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart makes one serve completely, on a store that has what has to exist.
func BenchmarkStart(b *testing.B) {
	ctx, first, _ := start(b)
	if err := first.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := New(first.opts)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Start(ctx); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
