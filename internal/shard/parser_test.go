package shard

import (
	"fmt"
	"strings"
	"testing"
)

// TestParser: parsed selectors are cached, invalid ones are not, and clients cannot fill the cache.
func TestParser(t *testing.T) {
	var p Parser
	text := shardRange("uid", "0x0000000000000000", "0x8000000000000000")
	first, err := p.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Parse(strings.Clone(text)); err != nil || again != first {
		t.Errorf("parsed again: %v, %v", again, err)
	}
	if _, err := p.Parse("x"); err == nil || len(p.known) != 1 {
		t.Errorf("%d known, %v", len(p.known), err)
	}
	long := text + strings.Repeat(" ", maxKnownText)
	if s, err := p.Parse(long); err != nil || s.String() != first.String() || len(p.known) != 1 {
		t.Errorf("%d known, %v", len(p.known), err)
	}
	for i := range 2*maxKnown + 1 {
		other := shardRange("uid", "0x0000000000000000", fmt.Sprintf("0x%016x", i+1))
		if s, err := p.Parse(other); err != nil || s.Ranges()[0].Last != uint64(i) {
			t.Fatal(s, err)
		}
		if len(p.known) > maxKnown {
			t.Fatalf("%d known", len(p.known))
		}
	}
}

func BenchmarkParser(b *testing.B) {
	var p Parser
	text := shardRange("uid", "0x0000000000000000", "0x8000000000000000")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
