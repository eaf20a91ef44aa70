package usage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// distributions are whom the n-th request is from.
var distributions = map[string]func(r *rand.Rand, n int) int{
	"uniform": func(r *rand.Rand, _ int) int { return r.IntN(5000) },
	"zipf": func(r *rand.Rand, _ int) int {
		return int(math.Exp(r.Float64()*math.Log(8000))) - 1
	},
	"each another": func(_ *rand.Rand, n int) int { return n },
	"one after the other": func(_ *rand.Rand, n int) int {
		return n / 50
	},
	"few":          func(r *rand.Rand, _ int) int { return r.IntN(20) },
	"one and all":  func(r *rand.Rand, n int) int { return n * r.IntN(2) },
	"heavy at end": func(_ *rand.Rand, n int) int { return min(n, 3500) },
}

// TestSummary: no count is too high, none is short by more than error, and error is no more than the theorem says,
// whatever comes and however it is merged.
func TestSummary(t *testing.T) {
	for name, who := range distributions {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 1))
			size := 1 + r.IntN(64)
			parts := make([]*summary[int], 1+r.IntN(8))
			for i := range parts {
				parts[i] = newSummary[int](size)
			}
			truth, all := make(map[int]float64), 0.0
			requests := make(map[int]int64)
			for n := range 4000 {
				key, weight := who(r, n), 1+math.Floor(r.ExpFloat64()*10)
				part := parts[r.IntN(len(parts))]
				if r.IntN(2) == 0 {
					part = parts[n*len(parts)/4000]
				}
				part.add(key, &Cost{Requests: 1, Work: weight}, weight, func(key int) int { return key })
				truth[key] += weight
				requests[key]++
				all += weight
			}
			for len(parts) > 1 { // in any order
				r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
				parts[0].merge(parts[len(parts)-1])
				parts = parts[:len(parts)-1]
			}
			s := parts[0]
			if len(s.entries) > 2*size {
				t.Fatalf("%s, seed %d: %d keys of a summary of %d", name, seed, len(s.entries), size)
			}
			if most := all / float64(size+1); s.error > most {
				t.Errorf("%s, seed %d: the error is %.0f, of %.0f in %d it is %.0f at most", name, seed, s.error, all, size, most)
			}
			for key, weight := range truth {
				var counted Cost
				if e := s.entries[key]; e != nil {
					counted = e.cost
				}
				if counted.Work > weight || counted.Requests > requests[key] || weight-counted.Work > s.error {
					t.Fatalf("%s, seed %d: %+v are counted of %d requests that weigh %.0f, with an error of %.0f", name, seed, counted, requests[key], weight, s.error)
				}
			}
			if len(truth) <= size && s.error > 0 {
				t.Errorf("%s, seed %d: there is room for all, and an error of %.0f", name, seed, s.error)
			}
		}
	}
}

// TestWeights: a request weighs as much as Report.Missing takes it to at least.
func TestWeights(t *testing.T) {
	for _, c := range []Cost{{Requests: 1}, {Requests: 1, Work: 5e5}, {Requests: 3, Bytes: 10, UpstreamRequests: .5}} {
		if c.weight() < requestWeight*float64(c.Requests) {
			t.Errorf("%+v weighs %.0f", c, c.weight())
		}
	}
}

// BenchmarkSummary is what a key costs that is known, and one that never is.
func BenchmarkSummary(b *testing.B) {
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("system:serviceaccount:namespace-%d:account", i)
	}
	cost := Cost{Requests: 1}
	for name, many := range map[string]int{"known": 100, "unknown": len(names)} {
		b.Run(name, func(b *testing.B) {
			s := newSummary[string](defaultSize)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.add(names[i%many], &cost, 1, func(key string) string { return key })
			}
		})
	}
}
