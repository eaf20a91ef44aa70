package object

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
const (
	numMetadata = 1 // of every object

	numMetaName        = 1
	numMetaNamespace   = 3
	numMetaUID         = 5
	numMetaRV          = 6
	numMetaCreation    = 8
	numMetaLabels      = 11
	numMetaAnnotations = 12

	numMapKey   = 1
	numMapValue = 2

	numTimeSeconds = 1
)

var (
	errNoMetadata = errors.New("metadata is missing")
	errWireType   = errors.New("wrong wire type of a known field")
)

// protobuf walks sc.raw as a bare message. Submessages without anything of
// interest are stepped over, not looked into.
func (sc *scan) protobuf() error {
	root := sc.schema.proto
	found := false
	err := walk(sc.raw, func(f protoField) error {
		if f.num == numMetadata {
			if f.typ != protowire.BytesType {
				return errWireType
			}
			found = true
			sc.metaStart, sc.metaEnd = f.start, f.end
			return sc.protoMetadata(f.bytes)
		}
		return sc.protoNode(root.find(f.num), f)
	})
	if err == nil && !found {
		err = errNoMetadata
	}
	return err
}

// protoField is one field of a message.
type protoField struct {
	num protowire.Number
	typ protowire.Type
	// bytes is the payload of a BytesType field, at [start:end] of the message.
	bytes      []byte
	start, end int
	varint     uint64
}

// walk calls visit for each field of a message.
func walk(msg []byte, visit func(protoField) error) error {
	for pos := 0; pos < len(msg); {
		num, typ, n := protowire.ConsumeTag(msg[pos:])
		if n < 0 {
			return fmt.Errorf("malformed message at byte %d: %w", pos, protowire.ParseError(n))
		}
		pos += n
		f := protoField{num: num, typ: typ}
		switch typ {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(msg[pos:])
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(msg[pos:])
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg[pos:])
		}
		if n < 0 {
			return fmt.Errorf("malformed message at byte %d: %w", pos, protowire.ParseError(n))
		}
		pos += n
		f.start, f.end = pos-len(f.bytes), pos
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// protoNode reads a field that node (nil: nothing of interest) describes.
func (sc *scan) protoNode(node *protoNode, f protoField) error {
	if node == nil {
		return nil
	}
	if node.slot != noSlot {
		return sc.protoValue(node, f)
	}
	if f.typ != protowire.BytesType {
		return errWireType
	}
	return walk(f.bytes, func(f protoField) error { return sc.protoNode(node.find(f.num), f) })
}

func (sc *scan) protoValue(node *protoNode, f protoField) error {
	want := protowire.VarintType
	if node.kind == stringValue {
		want = protowire.BytesType
	}
	if f.typ != want {
		return errWireType
	}
	start := len(sc.text)
	switch node.kind {
	case stringValue:
		sc.values[node.slot] = f.bytes
		return nil
	case boolValue:
		sc.text = strconv.AppendBool(sc.text, f.varint != 0)
	case intValue:
		sc.text = strconv.AppendInt(sc.text, int64(f.varint), 10)
	}
	sc.values[node.slot] = sc.text[start:]
	return nil
}

func (sc *scan) protoMetadata(msg []byte) error {
	return walk(msg, func(f protoField) error {
		var text *[]byte
		switch f.num {
		case numMetaName:
			text = &sc.name
		case numMetaNamespace:
			text = &sc.namespace
		case numMetaUID:
			text = &sc.uid
		case numMetaRV:
			text = &sc.rv
		case numMetaCreation, numMetaLabels:
		default:
			return nil
		}
		if f.typ != protowire.BytesType {
			return errWireType
		}
		switch f.num {
		case numMetaCreation:
			return sc.protoTime(f.bytes)
		case numMetaLabels:
			return sc.protoLabel(f.bytes)
		}
		*text = f.bytes
		return nil
	})
}

func (sc *scan) protoTime(msg []byte) error {
	return walk(msg, func(f protoField) error {
		if f.num == numTimeSeconds {
			if f.typ != protowire.VarintType {
				return errWireType
			}
			sc.creation = int64(f.varint)
		}
		return nil
	})
}

func (sc *scan) protoLabel(msg []byte) error {
	var l labelBytes
	err := walk(msg, func(f protoField) error {
		if f.num != numMapKey && f.num != numMapValue {
			return nil
		}
		if f.typ != protowire.BytesType {
			return errWireType
		}
		if f.num == numMapKey {
			l.key = f.bytes
		} else {
			l.value = f.bytes
		}
		return nil
	})
	sc.labels = append(sc.labels, l)
	return err
}
