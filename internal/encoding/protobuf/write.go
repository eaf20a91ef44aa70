package protobuf

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/api"
)

// magic begins every protobuf body of the Kubernetes API that is not a watch, and every object
// within a watch. The envelope, a runtime.Unknown, follows.
const magic = "k8s\x00"

// Tail ends an envelope: the empty contentEncoding and contentType of runtime.Unknown.
const Tail = "\x1a\x00\x22\x00"

// Envelope is an object with its type, as in a body.
type Envelope struct {
	APIVersion, Kind string
	// Raw is the bare message. It aliases the body.
	Raw []byte
}

// IsEnvelope reports whether a body begins like those in protobuf.
func IsEnvelope(body []byte) bool { return bytes.HasPrefix(body, []byte(magic)) }

// Open returns the object in a body.
func Open(body []byte) (Envelope, error) {
	typeMeta, raw, err := contents(body)
	if err != nil {
		return Envelope{}, err
	}
	e := Envelope{Raw: raw}
	e.APIVersion, e.Kind, err = parseTypeMeta(typeMeta)
	return e, err
}

// contents returns the two messages in a body.
func contents(body []byte) (typeMeta, raw []byte, err error) {
	if !IsEnvelope(body) {
		return nil, nil, fmt.Errorf("%w: the envelope of an object does not begin with its magic bytes", errMalformed)
	}
	raw = []byte{}
	err = walkBytes(body[len(magic):], func(f field) error {
		switch f.num {
		case unknownTypeMeta:
			typeMeta = f.bytes
		case unknownRaw:
			raw = f.bytes
		default:
			return checkEncoding(f.num, f.bytes)
		}
		return nil
	})
	return typeMeta, raw, err
}

func parseTypeMeta(msg []byte) (apiVersion, kind string, err error) {
	err = walkBytes(msg, func(f field) error {
		switch f.num {
		case typeMetaAPIVersion:
			apiVersion = string(f.bytes)
		case typeMetaKind:
			kind = string(f.bytes)
		}
		return nil
	})
	return apiVersion, kind, err
}

// checkEncoding rejects an envelope whose contents are not the plain message.
func checkEncoding(num protowire.Number, content []byte) error {
	switch {
	case num == unknownContentEncoding && len(content) > 0:
		return fmt.Errorf("envelope has the content encoding %q", content)
	case num == unknownContentType && len(content) > 0 && string(content) != api.Protobuf.MediaType():
		return fmt.Errorf("envelope has the content type %q", content)
	}
	return nil
}

// appendBodyHead appends what precedes the bare message, of size bytes, in a body. Tail
// follows the message.
func appendBodyHead(dst []byte, apiVersion, kind string, size int) []byte {
	dst = append(dst, magic...)
	dst = appendHead(dst, unknownTypeMeta, typeMetaSize(apiVersion, kind))
	dst = appendStringField(dst, typeMetaAPIVersion, apiVersion)
	dst = appendStringField(dst, typeMetaKind, kind)
	return appendHead(dst, unknownRaw, size)
}

func typeMetaSize(apiVersion, kind string) int {
	return fieldSize(typeMetaAPIVersion, len(apiVersion)) + fieldSize(typeMetaKind, len(kind))
}

// envelopeSize returns the size of a message of size bytes with its head and tail.
func envelopeSize(apiVersion, kind string, size int) int {
	return len(magic) + fieldSize(unknownTypeMeta, typeMetaSize(apiVersion, kind)) + fieldSize(unknownRaw, size) + len(Tail)
}

// appendListHead appends what precedes the items in the body of a list; listMeta is a
// bare metav1.ListMeta, itemsSize the sum of Codec.ItemSize over the items. Tail follows the
// items.
func appendListHead(dst []byte, apiVersion, kind string, listMeta []byte, itemsSize int) []byte {
	dst = appendBodyHead(dst, apiVersion, kind, fieldSize(listMetadata, len(listMeta))+itemsSize)
	return appendBytesField(dst, listMetadata, listMeta)
}

// appendEventHead appends what precedes the bare message, of size bytes, in an event of
// a watch: four bytes of length, big-endian, and the beginning of a metav1.WatchEvent.
// Tail follows the message.
func appendEventHead(dst []byte, t api.EventType, apiVersion, kind string, size int) []byte {
	object := envelopeSize(apiVersion, kind, size)
	extension := fieldSize(rawExtensionRaw, object)
	name := t.String()
	dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(watchEventType, len(name))+fieldSize(watchEventObject, extension)))
	dst = appendStringField(dst, watchEventType, name)
	dst = appendHead(dst, watchEventObject, extension)
	dst = appendHead(dst, rawExtensionRaw, object)
	return appendBodyHead(dst, apiVersion, kind, size)
}
