package cbor

import (
	"encoding/json"
	"testing"

	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// BenchmarkWellFormed checks a pod, which is the minimum cost of an object if the reflector used
// CBOR.
func BenchmarkWellFormed(b *testing.B) {
	text, err := json.Marshal(encodingtest.Pod(1))
	if err != nil {
		b.Fatal(err)
	}
	item, err := Append(nil, text, Untyped)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(item)))
	for b.Loop() {
		if err := wellFormed(item); err != nil {
			b.Fatal(err)
		}
	}
}
