// Package cbortest compares CBOR in tests.
package cbortest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Diagnose is an item as text, for people.
func Diagnose(item []byte) string {
	text, err := direct.Diagnose(item)
	if err != nil {
		return fmt.Sprintf("%x (%v)", item, err)
	}
	return text
}

// Sorted returns a CBOR item with the members of its maps in the order of their keys' bytes, and nothing else changed:
// kube-apiserver writes them in random order.
func Sorted(t testing.TB, item []byte) []byte {
	t.Helper()
	out, rest := sortItem(t, nil, item)
	if len(rest) > 0 {
		t.Fatalf("%d bytes after the item", len(rest))
	}
	return out
}

// sortItem appends the first item of src and returns what follows it.
func sortItem(t testing.TB, dst, src []byte) (out, rest []byte) {
	t.Helper()
	if len(src) == 0 {
		t.Fatal("an item is missing")
	}
	size, n := 1, uint64(src[0]&31)
	if n >= 24 {
		size += 1 << (n - 24)
		if n > 27 || len(src) < size {
			t.Fatalf("bad head % x", src[:min(len(src), 9)])
		}
		var argument [8]byte
		copy(argument[8-(size-1):], src[1:size])
		n = binary.BigEndian.Uint64(argument[:])
	}
	dst, rest = append(dst, src[:size]...), src[size:]
	switch src[0] >> 5 {
	case 2, 3: // byte string, text string
		if uint64(len(rest)) < n {
			t.Fatal("a string does not end")
		}
		return append(dst, rest[:n]...), rest[n:]
	case 4:
		for range n {
			dst, rest = sortItem(t, dst, rest)
		}
	case 5:
		type member struct{ key, value []byte }
		members := make([]member, n)
		for i := range members {
			members[i].key, rest = sortItem(t, nil, rest)
			members[i].value, rest = sortItem(t, nil, rest)
		}
		slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.key, b.key) })
		for _, m := range members {
			dst = append(append(dst, m.key...), m.value...)
		}
	case 6:
		return sortItem(t, dst, rest)
	}
	return dst, rest
}
