// Package shard implements the parts of a collection that clients read with the parameter
// shardSelector (KEP-5866): objects whose uid or namespace has a hash within some ranges.
//
// k8s.io/apiserver (pkg/sharding) parses selectors and words the errors. Matching is done here,
// with numbers instead of their hexadecimal text.
package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/sharding"
)

// Key is the attribute of an object that is hashed.
type Key uint8

// The keys.
const (
	UID Key = iota
	Namespace

	numKeys
)

// Keys is the number of keys.
const Keys = int(numKeys)

// Range is a part of the hash space. It includes both ends, because the end of the whole space does
// not fit into 64 bits.
type Range struct{ First, Last uint64 }

// Selector is a parsed shardSelector. It is immutable.
type Selector struct {
	key    Key
	ranges []Range // ascending, not adjacent, never empty
	text   string
}

// Parse parses the value of a shardSelector. The error is the one that kube-apiserver returns, as a
// 500 without a reason.
func Parse(value string) (*Selector, error) {
	parsed, err := sharding.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("invalid shard selector: %w", err)
	}
	s := &Selector{text: parsed.String()}
	for i, r := range parsed.Requirements() {
		if i == 0 && r.Key == "object.metadata.namespace" {
			s.key = Namespace
		}
		part, err := rangeOf(r)
		if err != nil {
			return nil, fmt.Errorf("invalid shard selector: %w", err)
		}
		s.ranges = append(s.ranges, part)
	}
	s.ranges = join(s.ranges)
	return s, nil
}

// rangeOf converts a range to numbers. The parser has made sure that it is not empty.
func rangeOf(r apisharding.ShardRangeRequirement) (Range, error) {
	first, err := strconv.ParseUint(r.Start[len("0x"):], 16, 64)
	if err != nil {
		return Range{}, err
	}
	if r.End == "0x10000000000000000" {
		return Range{first, 1<<64 - 1}, nil
	}
	end, err := strconv.ParseUint(r.End[len("0x"):], 16, 64)
	return Range{first, end - 1}, err
}

// join sorts ranges and merges adjacent ones.
func join(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	out := ranges[:1]
	for _, r := range ranges[1:] {
		last := &out[len(out)-1]
		if last.Last == 1<<64-1 || r.First <= last.Last+1 {
			last.Last = max(last.Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Key returns the attribute of objects that is hashed.
func (s *Selector) Key() Key { return s.key }

// Ranges returns the hashes of the shard, ascending, no two of them adjacent. They must not be
// changed.
func (s *Selector) Ranges() []Range { return s.ranges }

// String returns the selector as lists echo it.
func (s *Selector) String() string { return s.text }

// Has reports whether objects with this hash belong to the shard. Its cost is logarithmic in the
// number of ranges.
func (s *Selector) Has(hash uint64) bool {
	if len(s.ranges) == 1 {
		return s.ranges[0].has(hash)
	}
	i, _ := slices.BinarySearchFunc(s.ranges, hash, func(r Range, hash uint64) int { return cmp.Compare(r.Last, hash) })
	return i < len(s.ranges) && s.ranges[i].has(hash)
}

func (r Range) has(hash uint64) bool { return r.First <= hash && hash <= r.Last }

// Part returns which part of all hashes the shard has, from 0 to 1.
func (s *Selector) Part() float64 {
	part := 0.0
	for _, r := range s.ranges {
		part += (float64(r.Last-r.First) + 1) / (1 << 64)
	}
	return part
}

// Hash returns the hash of a value: 64-bit FNV-1a (apimachinery's HashField returns its text).
func Hash(value string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * 1099511628211
	}
	return h
}
