package conformance

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
)

// An item is an encoded CBOR item.
type item []byte

// MarshalCBOR returns the item itself.
func (i item) MarshalCBOR() ([]byte, error) { return i, nil }

// UnmarshalCBOR copies the encoded item.
func (i *item) UnmarshalCBOR(b []byte) error {
	*i = bytes.Clone(b)
	return nil
}

func isCBOR(b []byte) bool { return bytes.HasPrefix(b, []byte(cbor.SelfDescribed)) }

// cborText returns a CBOR item as text and hides legitimate differences between two servers: the
// order of a map's members, which kube-apiserver chooses at random, and, in the map at path (the
// metadata of a list), the version and the continue token. The text distinguishes all types and
// sizes of numbers and strings. A body that cannot be parsed is returned unchanged.
func cborText(body []byte, replace func(string, string) string, path ...string) []byte {
	out, err := replaced(body, replace, path)
	if err != nil {
		return body
	}
	sorted, err := cbortest.Sort(out)
	if err != nil {
		return body
	}
	return []byte(cbortest.Diagnose(sorted))
}

// replaced applies replace to the strings in the map at path.
func replaced(body item, replace func(key, value string) string, path []string) (item, error) {
	var members map[string]item
	if err := direct.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	var err error
	switch {
	case len(path) > 0 && members[path[0]] != nil:
		members[path[0]], err = replaced(members[path[0]], replace, path[1:])
	case len(path) == 0:
		for _, key := range slices.Collect(maps.Keys(members)) {
			var value string
			if direct.Unmarshal(members[key], &value) == nil {
				members[key], err = direct.Marshal(replace(key, value))
			}
		}
	}
	if err != nil {
		return nil, err
	}
	out, err := direct.Marshal(members)
	if isCBOR(body) {
		out = append([]byte(cbor.SelfDescribed), out...)
	}
	return out, err
}

// cborListMetadata is listMetadata for a list in CBOR.
func cborListMetadata(body []byte, rule VersionRule) []byte {
	return cborText(body, func(key, value string) string {
		switch _, err := strconv.ParseUint(value, 10, 64); {
		case key == "continue":
			return describeToken(value, rule)
		case key == "resourceVersion" && err == nil && rule == AnyVersion:
			return "MASKED"
		}
		return value
	}, "metadata")
}

// nextCBORFrame reads one event of a CBOR sequence.
func nextCBORFrame(r *bufio.Reader) (Frame, error) {
	b, err := readItem(r, nil)
	if err != nil {
		return Frame{}, err
	}
	var e struct {
		Type   string `json:"type"`
		Object item   `json:"object"`
	}
	if err := direct.Unmarshal(b, &e); err != nil || !isCBOR(b) || e.Type == "" || len(e.Object) == 0 {
		return Frame{}, fmt.Errorf("not a CBOR watch event: %x (%w)", b, err)
	}
	return Frame{Type: e.Type, Bytes: b}, nil
}

// readItem appends the next item of r, which must have definite lengths.
func readItem(r *bufio.Reader, dst []byte) ([]byte, error) {
	first, err := r.ReadByte()
	if err != nil {
		return dst, err
	}
	argument := make([]byte, 8)
	n, size := uint64(first&31), 0
	if n >= 24 {
		if size = 1 << (n - 24); n > 27 {
			return dst, fmt.Errorf("unexpected first byte %x of a CBOR item", first)
		}
		if _, err := io.ReadFull(r, argument[8-size:]); err != nil {
			return dst, cutOff(err)
		}
		n = binary.BigEndian.Uint64(argument)
	}
	dst = append(append(dst, first), argument[8-size:]...)
	items := uint64(0)
	switch first >> 5 {
	case 2, 3: // strings
		if n > maxFrame {
			return dst, fmt.Errorf("CBOR string of %d bytes is too long", n)
		}
		dst = append(dst, make([]byte, n)...)
		_, err = io.ReadFull(r, dst[len(dst)-int(n):])
	case 4: // array
		items = n
	case 5: // map
		items = 2 * n
	case 6: // tag
		items = 1
	}
	for ; items > 0 && err == nil; items-- {
		dst, err = readItem(r, dst)
	}
	return dst, cutOff(err)
}

// cutOff converts an EOF within an item, which is not a valid end of a watch, to
// io.ErrUnexpectedEOF.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the last event is truncated: %w", io.ErrUnexpectedEOF)
	}
	return err
}
