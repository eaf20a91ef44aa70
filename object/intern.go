package object

import (
	"hash/maphash"
	"sync/atomic"
)

// internSlots is the maximum number of strings in an interner.
const internSlots = 1024

// internMaxLen is the longest string worth sharing; a label value has at most
// 63 bytes, a label key with its prefix seldom more than 100.
const internMaxLen = 128

// interner shares strings that many objects of a collection repeat (label keys, node names,
// phases). It is a direct-mapped table, so it is bounded by construction and needs no lock: a lost
// race costs one string that is not shared, never a wrong one.
//
// A string enters when it is seen for the second time. A unique one (a label with the pod's name)
// therefore costs no allocation and evicts nothing.
type interner struct {
	seed  maphash.Seed
	seen  [internSlots]atomic.Uint32
	value [internSlots]atomic.Pointer[string]
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

// get returns the shared string equal to b. ok is false if there is none (yet).
func (t *interner) get(b []byte) (s string, ok bool) {
	if len(b) == 0 {
		return "", true
	}
	if len(b) > internMaxLen {
		return "", false
	}
	h := maphash.Bytes(t.seed, b)
	slot := h % internSlots
	if p := t.value[slot].Load(); p != nil && *p == string(b) {
		return *p, true
	}
	mark := uint32(h>>32) | 1 // never 0, which is an unused slot
	if t.seen[slot].Swap(mark) != mark {
		return "", false
	}
	shared := string(b)
	t.value[slot].Store(&shared)
	return shared, true
}
