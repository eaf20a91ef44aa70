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

// An item is one of CBOR, as it came on the wire.
type item []byte

// MarshalCBOR and UnmarshalCBOR make it what stands where it stands.
func (i item) MarshalCBOR() ([]byte, error) { return i, nil }

// UnmarshalCBOR implements the interface of that name.
func (i *item) UnmarshalCBOR(b []byte) error {
	*i = bytes.Clone(b)
	return nil
}

func isCBOR(b []byte) bool { return bytes.HasPrefix(b, []byte(cbor.SelfDescribed)) }

// cborText is an item as text in which only what two right answers may differ in is alike: the order of a map's members,
// which kube-apiserver chooses at random, and at path, a list's metadata, version and continue token. The text tells
// all kinds and sizes of numbers and strings apart. What cannot be read is returned as it is.
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

// replaced is an item with what replace makes of the strings in the map at path.
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

// cborListMetadata is listMetadata of a list in CBOR.
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

// nextCBORFrame reads one event of a sequence.
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

// readItem appends the next item of r, whose lengths are definite.
func readItem(r *bufio.Reader, dst []byte) ([]byte, error) {
	first, err := r.ReadByte()
	if err != nil {
		return dst, err
	}
	argument := make([]byte, 8)
	n, size := uint64(first&31), 0
	if n >= 24 {
		if size = 1 << (n - 24); n > 27 {
			return dst, fmt.Errorf("an item that begins with %x", first)
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
			return dst, fmt.Errorf("a string of %d bytes", n)
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

// cutOff is an error within an item: the end of the stream is none that a watch may have there.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the last event is cut off: %w", io.ErrUnexpectedEOF)
	}
	return err
}
