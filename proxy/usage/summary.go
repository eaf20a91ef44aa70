package usage

import "slices"

// summary is a Misra-Gries summary of costs by key, with weights. It holds at least the size keys
// with the largest weights.
//
// It takes up to twice as many keys. When there is one more, the weight of the largest key but size
// is subtracted from all weights, and the keys with nothing left are dropped. So each time the
// weights lose in total at least size+1 times what any one of them does, and error, the sum of what
// was subtracted, is at most the weight of everything that was added / (size+1). A key is missing,
// or counted short, by no more than error, and never counted too high. The same holds for a summary
// that others were merged into (Agarwal et al., Mergeable Summaries).
//
// It is not safe for concurrent use.
type summary[K comparable] struct {
	size    int
	entries map[K]*entry
	error   float64
}

type entry struct {
	cost Cost // since the key is in the summary
	left float64
}

func newSummary[K comparable](size int) *summary[K] {
	return &summary[K]{size: size, entries: make(map[K]*entry)}
}

// add adds a cost of that weight. It clones a new key, which may be part of a larger string.
func (s *summary[K]) add(key K, cost *Cost, weight float64, clone func(K) K) {
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= 2*s.size {
			s.compress()
		}
		e = &entry{}
		s.entries[clone(key)] = e
	}
	e.cost.add(cost)
	e.left += weight
}

// merge adds the costs of another summary.
func (s *summary[K]) merge(other *summary[K]) {
	for key, from := range other.entries {
		s.add(key, &from.cost, from.left, func(key K) K { return key })
	}
	s.error += other.error
}

// compress leaves at most size keys.
func (s *summary[K]) compress() {
	weights := make([]float64, 0, len(s.entries))
	for _, e := range s.entries {
		weights = append(weights, e.left)
	}
	slices.Sort(weights)
	taken := weights[len(weights)-1-s.size]
	for key, e := range s.entries {
		if e.left -= taken; e.left <= 0 {
			delete(s.entries, key)
		}
	}
	s.error += taken
}
