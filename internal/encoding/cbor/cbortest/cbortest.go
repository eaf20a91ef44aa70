// Package cbortest compares CBOR in tests.
package cbortest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Diagnose returns an item as human-readable text.
func Diagnose(item []byte) string {
	text, err := direct.Diagnose(item)
	if err != nil {
		return fmt.Sprintf("%x (%v)", item, err)
	}
	return text
}

// Sorted is Sort for an item that must be valid.
func Sorted(t testing.TB, item []byte) []byte {
	t.Helper()
	out, err := Sort(item)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Sort returns a CBOR item with the members of its maps ordered by their keys' bytes, and otherwise
// unchanged: kube-apiserver writes members in random order.
func Sort(item []byte) ([]byte, error) {
	out, rest, err := sortItem(nil, item)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the item", len(rest))
	}
	return out, err
}

// sortItem appends the first item of src and returns what follows it.
func sortItem(dst, src []byte) (out, rest []byte, err error) {
	if len(src) == 0 {
		return nil, nil, errors.New("an item is missing")
	}
	size, n := 1, uint64(src[0]&31)
	if n >= 24 {
		size += 1 << (n - 24)
		if n > 27 || len(src) < size {
			return nil, nil, fmt.Errorf("bad head % x", src[:min(len(src), 9)])
		}
		var argument [8]byte
		copy(argument[8-(size-1):], src[1:size])
		n = binary.BigEndian.Uint64(argument[:])
	}
	dst, rest = append(dst, src[:size]...), src[size:]
	switch src[0] >> 5 {
	case 2, 3: // byte string, text string
		if uint64(len(rest)) < n {
			return nil, nil, errors.New("a string does not end")
		}
		return append(dst, rest[:n]...), rest[n:], nil
	case 4:
		for ; n > 0 && err == nil; n-- {
			dst, rest, err = sortItem(dst, rest)
		}
		return dst, rest, err
	case 5:
		return sortMembers(dst, rest, n)
	case 6:
		return sortItem(dst, rest)
	}
	return dst, rest, nil
}

// sortMembers appends the n members of a map.
func sortMembers(dst, rest []byte, n uint64) (out, after []byte, err error) {
	type member struct{ key, value []byte }
	var members []member
	for ; n > 0; n-- {
		var m member
		if m.key, rest, err = sortItem(nil, rest); err == nil {
			m.value, rest, err = sortItem(nil, rest)
		}
		if err != nil {
			return nil, nil, err
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.key, b.key) })
	for _, m := range members {
		dst = append(append(dst, m.key...), m.value...)
	}
	return dst, rest, nil
}
