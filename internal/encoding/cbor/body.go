package cbor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// AppendListHead appends everything before the items of a list of n items. listMeta is the CBOR of
// its metadata. A list ends with its last item.
func AppendListHead(dst []byte, apiVersion, kind string, listMeta []byte, n int) []byte {
	dst = append(dst, SelfDescribed...)
	dst = append(dst, majorMap|4)
	dst = appendString(dst, "kind")
	dst = appendString(dst, kind)
	dst = appendString(dst, "apiVersion")
	dst = appendString(dst, apiVersion)
	dst = appendString(dst, "metadata")
	dst = append(dst, listMeta...)
	dst = appendString(dst, "items")
	return appendHead(dst, majorArray, uint64(n))
}

// WithListMember returns a head made by AppendListHead with one more member in the metadata.
func WithListMember(head []byte, name string, value []byte) []byte {
	before, metadata, _ := bytes.Cut(head, appendString(nil, "metadata"))
	n, offset := mapHead(metadata)
	out := append(slices.Clone(before), appendString(nil, "metadata")...)
	out = append(appendString(appendHead(out, majorMap, uint64(n+1)), name), value...)
	return append(out, metadata[offset:]...)
}

// typeMembers is how many members of an object name its type.
const typeMembers = 2

var errType = errors.New("CBOR of an object that does not begin with kind and apiVersion")

// AfterType returns the offset, in an object's CBOR without SelfDescribed, of the members that
// follow kind and apiVersion.
func AfterType(object []byte) (offset int, err error) {
	n, offset := mapHead(object)
	if n < typeMembers {
		return 0, errType
	}
	for _, want := range []string{"kind", "apiVersion"} {
		key, next := byteString(object, offset)
		if next < 0 || string(key) != want {
			return 0, errType
		}
		if _, offset = byteString(object, next); offset < 0 {
			return 0, errType
		}
	}
	return offset, nil
}

// AppendItemHead appends the beginning of an object of a built-in type as an item of a list,
// without kind and apiVersion, up to the members that follow the type.
func AppendItemHead(dst, object []byte) []byte {
	n, _ := mapHead(object)
	return appendHead(dst, majorMap, uint64(n-typeMembers))
}

// ItemSize returns the size of such an item. afterType is the result of AfterType.
func ItemSize(object []byte, afterType int) int {
	n, _ := mapHead(object)
	return headSize(n-typeMembers) + len(object) - afterType
}

// mapHead reads the head of a map of up to 65535 members, and returns their number and where they
// begin: 0 if the item is something else.
func mapHead(item []byte) (n, offset int) {
	switch {
	case len(item) > 0 && item[0]-majorMap < argument1:
		return int(item[0] - majorMap), 1
	case len(item) > 1 && item[0] == majorMap|argument1:
		return int(item[1]), 2
	case len(item) > 2 && item[0] == majorMap|argument2:
		return int(binary.BigEndian.Uint16(item[1:])), 3
	}
	return 0, 0
}

// byteString reads a byte string of up to 255 bytes at item[i]; next is -1 if there is none.
func byteString(item []byte, i int) (content []byte, next int) {
	var n int
	switch {
	case i < len(item) && item[i]-majorBytes < argument1:
		n, i = int(item[i]-majorBytes), i+1
	case i+1 < len(item) && item[i] == majorBytes|argument1:
		n, i = int(item[i+1]), i+2
	default:
		return nil, -1
	}
	if i+n > len(item) {
		return nil, -1
	}
	return item[i : i+n], i + n
}

// AppendFrameHead appends what precedes the object in a watch event of the given type (ADDED). The
// event ends with the object's CBOR. Events follow one another without a separator (RFC 8742).
func AppendFrameHead(dst []byte, eventType string) []byte {
	dst = append(dst, SelfDescribed...)
	dst = append(dst, majorMap|2)
	dst = appendString(dst, "type")
	dst = appendString(dst, eventType)
	dst = appendString(dst, "object")
	return append(dst, SelfDescribed...)
}
