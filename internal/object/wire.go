package object

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
	"google.golang.org/protobuf/encoding/protowire"
)

// The wire forms follow the serializers of k8s.io/apimachinery (pkg/runtime/
// serializer/json, protobuf, streaming) byte for byte. All functions append to
// dst and return it; none keeps its arguments.

// protobufMagic begins every protobuf body of the Kubernetes API that is not a
// watch stream; runtime.Unknown follows.
const protobufMagic = "k8s\x00"

// Field numbers of k8s.io/apimachinery/pkg/runtime/generated.proto, of
// metav1.WatchEvent and of all list types.
const (
	numUnknownTypeMeta        = 1
	numUnknownRaw             = 2
	numUnknownContentEncoding = 3
	numUnknownContentType     = 4

	numTypeMetaAPIVersion = 1
	numTypeMetaKind       = 2

	numWatchEventType   = 1
	numWatchEventObject = 2
	numRawExtensionRaw  = 1

	numListMeta  = 1
	numListItems = 2
)

// AppendJSONListItem appends o as it stands among the items of a JSON list:
// without kind and apiVersion when its type is built in.
func AppendJSONListItem(dst []byte, o *Object) []byte {
	if o.ListOffset == 0 {
		return append(dst, o.Raw...)
	}
	dst = append(dst, '{')
	return append(dst, o.Raw[o.ListOffset:]...)
}

// JSONListItemSize is the number of bytes that AppendJSONListItem appends.
func JSONListItemSize(o *Object) int {
	if o.ListOffset == 0 {
		return len(o.Raw)
	}
	return 1 + len(o.Raw) - o.ListOffset
}

// AppendProtobufListItem appends raw, a bare message, as one of the items of a
// protobuf list message.
func AppendProtobufListItem(dst, raw []byte) []byte {
	return appendBytesField(dst, numListItems, raw)
}

// ProtobufListItemSize is the number of bytes that AppendProtobufListItem
// appends for a message of rawLen bytes.
func ProtobufListItemSize(rawLen int) int { return bytesFieldSize(numListItems, rawLen) }

// AppendProtobufListHead appends what comes before the items of a protobuf list
// body: magic, type, and listMeta (a bare metav1.ListMeta message). itemsSize is
// the sum of ProtobufListItemSize over the items. The items follow, then
// ProtobufTail.
func AppendProtobufListHead(dst []byte, apiVersion, kind string, listMeta []byte, itemsSize int) []byte {
	dst = AppendProtobufObjectHead(dst, apiVersion, kind, bytesFieldSize(numListMeta, len(listMeta))+itemsSize)
	return appendBytesField(dst, numListMeta, listMeta)
}

// ProtobufTail is what follows the raw bytes in a protobuf body: the empty
// contentEncoding and contentType of runtime.Unknown.
const ProtobufTail = "\x1a\x00\x22\x00"

// AppendProtobufObjectHead appends what precedes raw, a bare message of rawLen bytes, in a
// response body: the magic bytes and the head of runtime.Unknown. ProtobufTail follows raw.
func AppendProtobufObjectHead(dst []byte, apiVersion, kind string, rawLen int) []byte {
	dst = append(dst, protobufMagic...)
	dst = protowire.AppendTag(dst, numUnknownTypeMeta, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(typeMetaSize(apiVersion, kind)))
	dst = appendStringField(dst, numTypeMetaAPIVersion, apiVersion)
	dst = appendStringField(dst, numTypeMetaKind, kind)
	dst = protowire.AppendTag(dst, numUnknownRaw, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(rawLen))
}

func typeMetaSize(apiVersion, kind string) int {
	return bytesFieldSize(numTypeMetaAPIVersion, len(apiVersion)) + bytesFieldSize(numTypeMetaKind, len(kind))
}

// protobufObjectSize is the size of a body of raw, with head and tail.
func protobufObjectSize(apiVersion, kind string, rawLen int) int {
	return len(protobufMagic) +
		protowire.SizeTag(numUnknownTypeMeta) + protowire.SizeBytes(typeMetaSize(apiVersion, kind)) +
		bytesFieldSize(numUnknownRaw, rawLen) + len(ProtobufTail)
}

var errMagic = errors.New("protobuf body without the k8s magic bytes")

// ParseProtobufObject takes raw out of such a body, which it aliases.
func ParseProtobufObject(body []byte) (apiVersion, kind string, raw []byte, err error) {
	if !bytes.HasPrefix(body, []byte(protobufMagic)) {
		return "", "", nil, errMagic
	}
	err = walk(body[len(protobufMagic):], func(f protoField) error {
		switch f.num {
		case numUnknownTypeMeta:
			return walk(f.bytes, func(f protoField) error {
				switch f.num {
				case numTypeMetaAPIVersion:
					apiVersion = string(f.bytes)
				case numTypeMetaKind:
					kind = string(f.bytes)
				}
				return nil
			})
		case numUnknownRaw:
			raw = f.bytes
		case numUnknownContentEncoding, numUnknownContentType:
			if len(f.bytes) > 0 {
				return fmt.Errorf("protobuf body with inner content %q", f.bytes)
			}
		}
		return nil
	})
	if err != nil {
		return "", "", nil, fmt.Errorf("parse runtime.Unknown: %w", err)
	}
	return apiVersion, kind, raw, nil
}

// AppendJSONFrame appends a watch event of a JSON stream, one line. objectJSON
// is an object's JSON without line breaks.
func AppendJSONFrame(dst []byte, t api.EventType, objectJSON []byte) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, t.String()...)
	dst = append(dst, `","object":`...)
	dst = append(dst, objectJSON...)
	return append(dst, "}\n"...)
}

// AppendProtobufFrame appends a watch event of a protobuf stream: four bytes of
// length, big-endian, and a metav1.WatchEvent around raw, a bare message.
func AppendProtobufFrame(dst []byte, t api.EventType, apiVersion, kind string, raw []byte) []byte {
	dst = AppendProtobufFrameHead(dst, t, apiVersion, kind, len(raw))
	dst = append(dst, raw...)
	return append(dst, ProtobufTail...)
}

// AppendProtobufFrameHead appends what comes before raw, of rawLen bytes, in such an
// event; ProtobufTail follows raw.
func AppendProtobufFrameHead(dst []byte, t api.EventType, apiVersion, kind string, rawLen int) []byte {
	objectLen := protobufObjectSize(apiVersion, kind, rawLen)
	extensionLen := bytesFieldSize(numRawExtensionRaw, objectLen)
	name := t.String()
	eventLen := bytesFieldSize(numWatchEventType, len(name)) + bytesFieldSize(numWatchEventObject, extensionLen)
	dst = binary.BigEndian.AppendUint32(dst, uint32(eventLen))
	dst = appendStringField(dst, numWatchEventType, name)
	dst = protowire.AppendTag(dst, numWatchEventObject, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(extensionLen))
	dst = protowire.AppendTag(dst, numRawExtensionRaw, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(objectLen))
	return AppendProtobufObjectHead(dst, apiVersion, kind, rawLen)
}

// The type of objects reduced to their metadata.
const (
	PartialAPIVersion = "meta.k8s.io/v1"
	PartialKind       = "PartialObjectMetadata"
	PartialListKind   = "PartialObjectMetadataList"
)

const partialJSONHead = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`

// AppendPartialJSON appends the PartialObjectMetadata with the given metadata
// (Raw[MetaStart:MetaEnd] of a JSON object). Inside lists it looks the same.
func AppendPartialJSON(dst, metadata []byte) []byte {
	dst = append(dst, partialJSONHead...)
	dst = append(dst, metadata...)
	return append(dst, '}')
}

// AppendPartialProtobuf appends the bare PartialObjectMetadata message with the
// given ObjectMeta (Raw[MetaStart:MetaEnd] of a protobuf object).
func AppendPartialProtobuf(dst, metadata []byte) []byte {
	return appendBytesField(dst, numMetadata, metadata)
}

// Metadata is the encoded metadata inside Raw.
func (o *Object) Metadata() []byte { return o.Raw[o.MetaStart:o.MetaEnd] }

func appendBytesField(dst []byte, num protowire.Number, value []byte) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendBytes(dst, value)
}

func appendStringField(dst []byte, num protowire.Number, value string) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendString(dst, value)
}

func bytesFieldSize(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}
