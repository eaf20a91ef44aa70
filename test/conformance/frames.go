package conformance

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Frame is one event of a watch: the bytes on the wire without the framing.
type Frame struct {
	Type  string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Bytes []byte
	At    time.Time // when it was read
	proto bool
}

// maxFrame bounds the length prefix of a protobuf frame.
const maxFrame = 64 << 20

// nextFrame reads one frame of a watch response: a line of JSON, a length-prefixed protobuf
// message, or a CBOR item.
func nextFrame(r *bufio.Reader, contentType string) (Frame, error) {
	switch {
	case strings.HasPrefix(contentType, typeProto):
		return nextProtoFrame(r)
	case strings.HasPrefix(contentType, typeCBORSequence):
		return nextCBORFrame(r)
	}
	line, err := r.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return Frame{}, fmt.Errorf("the last event is truncated: %q", line)
		}
		return Frame{}, err
	}
	return jsonFrame(line)
}

func nextProtoFrame(r *bufio.Reader) (Frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return Frame{}, fmt.Errorf("frame of %d bytes is too long", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return Frame{}, fmt.Errorf("the last event is truncated: %w", err)
	}
	return protoFrame(b)
}

func jsonFrame(b []byte) (Frame, error) {
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(b, &e); err != nil || e.Type == "" || len(e.Object) == 0 {
		return Frame{}, fmt.Errorf("not a watch event: %q (%w)", b, err)
	}
	return Frame{Type: e.Type, Bytes: b}, nil
}

func protoFrame(b []byte) (Frame, error) {
	f := Frame{Type: string(field(b, eventType)), Bytes: b, proto: true}
	if f.Type == "" || !bytes.HasPrefix(field(b, eventObject, extensionRaw), protoMagic) {
		return Frame{}, fmt.Errorf("not a protobuf watch event: %q", b)
	}
	return f, nil
}

// version returns the resourceVersion of the event's object.
func (f Frame) version() (uint64, error) {
	if f.proto {
		object, ok := bytes.CutPrefix(field(f.Bytes, eventObject, extensionRaw), protoMagic)
		if !ok {
			return 0, errors.New("no protobuf object")
		}
		return strconv.ParseUint(string(field(object, unknownRaw, objectMeta, objectVersion)), 10, 64)
	}
	var e struct {
		Object struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		} `json:"object"`
	}
	if err := json.Unmarshal(f.Bytes, &e); err != nil {
		return 0, err
	}
	return strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 64)
}

// marksInitialEnd reports whether a bookmark ends the initial events.
func (f Frame) marksInitialEnd() bool {
	return bytes.Contains(f.Bytes, []byte("k8s.io/initial-events-end"))
}

// compared returns the bytes of a frame to compare. It masks the version of a bookmark, which
// differs between servers, and normalizes what has no defined order.
func (f Frame) compared() []byte {
	switch {
	case isCBOR(f.Bytes):
		return cborText(f.Bytes, func(key, value string) string {
			if f.Type == "BOOKMARK" && key == "resourceVersion" {
				return "MASKED"
			}
			return value
		}, "object", "metadata")
	case f.Type != "BOOKMARK":
		return f.Bytes
	}
	if !f.proto {
		return versionField.ReplaceAll(f.Bytes, []byte(`$1"MASKED"`))
	}
	out, err := rewrite(f.Bytes, []protowire.Number{eventObject, extensionRaw}, func(b []byte) []byte {
		inner, ok := bytes.CutPrefix(b, protoMagic)
		if !ok {
			return b
		}
		inner, err := rewrite(inner, []protowire.Number{unknownRaw, objectMeta, objectVersion}, func([]byte) []byte { return []byte("MASKED") })
		if err != nil {
			return b
		}
		return append(bytes.Clone(protoMagic), inner...)
	})
	if err != nil {
		return f.Bytes
	}
	return out
}
