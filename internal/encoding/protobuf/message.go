package protobuf

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Field numbers of k8s.io/apimachinery (pkg/runtime/generated.proto,
// pkg/apis/meta/v1/generated.proto), and those that all types share.
const (
	unknownTypeMeta        = 1 // runtime.Unknown
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4

	typeMetaAPIVersion = 1 // runtime.TypeMeta
	typeMetaKind       = 2

	listMetadata = 1 // every list
	listItems    = 2

	watchEventType   = 1 // meta.v1.WatchEvent
	watchEventObject = 2
	rawExtensionRaw  = 1 // runtime.RawExtension

	objectMetadata = 1 // every object

	metaName            = 1 // meta.v1.ObjectMeta
	metaNamespace       = 3
	metaUID             = 5
	metaResourceVersion = 6
	metaCreation        = 8
	metaLabels          = 11
	metaAnnotations     = 12
	metaManagedFields   = 17

	mapKey   = 1 // an entry of a map
	mapValue = 2

	timeSeconds = 1 // meta.v1.Time
)

// field is one field of a message.
type field struct {
	num protowire.Number
	typ protowire.Type
	// bytes is the payload of a BytesType field, at [start:end] of the message.
	bytes      []byte
	start, end int
	varint     uint64
}

// walk calls visit for each field of a message.
func walk(msg []byte, visit func(field) error) error {
	for pos := 0; pos < len(msg); {
		num, typ, n := protowire.ConsumeTag(msg[pos:])
		if n < 0 {
			return malformed(pos, n)
		}
		pos += n
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(msg[pos:])
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(msg[pos:])
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg[pos:])
		}
		if n < 0 {
			return malformed(pos, n)
		}
		pos += n
		f.start, f.end = pos-len(f.bytes), pos
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

func malformed(pos, code int) error {
	return fmt.Errorf("%w at byte %d: %w", errMalformed, pos, protowire.ParseError(code))
}

// walkBytes is walk for length-delimited fields: bytes, strings and messages.
func walkBytes(msg []byte, visit func(field) error) error {
	return walk(msg, func(f field) error {
		if f.typ != protowire.BytesType {
			return nil
		}
		return visit(f)
	})
}

// mapEntry parses an entry of a map of strings.
func mapEntry(msg []byte) (encoding.Label, error) {
	var l encoding.Label
	err := walk(msg, func(f field) error {
		if f.num != mapKey && f.num != mapValue {
			return nil
		}
		if f.typ != protowire.BytesType {
			return errWireType
		}
		if f.num == mapKey {
			l.Key = f.bytes
		} else {
			l.Value = f.bytes
		}
		return nil
	})
	return l, err
}

func appendBytesField(dst []byte, num protowire.Number, value []byte) []byte {
	return append(appendHead(dst, num, len(value)), value...)
}

func appendStringField(dst []byte, num protowire.Number, value string) []byte {
	return append(appendHead(dst, num, len(value)), value...)
}

// appendHead appends what precedes a value of size bytes.
func appendHead(dst []byte, num protowire.Number, size int) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size))
}

// fieldSize returns the size of a field with a value of n bytes.
func fieldSize(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}
