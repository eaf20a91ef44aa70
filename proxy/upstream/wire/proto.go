package wire

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// magic precedes every runtime.Unknown, the envelope of objects in protobuf
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
const magic = "k8s\x00"

// Field numbers of the messages of k8s.io/apimachinery that are walked here.
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

	objectMetadata            = 1 // every object
	objectMetaName            = 1 // meta.v1.ObjectMeta
	objectMetaNamespace       = 3
	objectMetaResourceVersion = 6
	objectMetaAnnotations     = 12
	mapKey, mapValue          = 1, 2
)

var errProto = errors.New("malformed protobuf")

// fields calls visit for each field of the message, with the content of
// length-delimited ones and nil for all others.
func fields(message []byte, visit func(num protowire.Number, content []byte) error) error {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errProto, protowire.ParseError(n))
		}
		message = message[n:]
		var content []byte
		if typ == protowire.BytesType {
			content, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(num, typ, message)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errProto, protowire.ParseError(n))
		}
		message = message[n:]
		if typ != protowire.BytesType {
			continue
		}
		if err := visit(num, content); err != nil {
			return err
		}
	}
	return nil
}

// typeMeta is runtime.TypeMeta.
type typeMeta struct{ apiVersion, kind string }

func parseTypeMeta(message []byte) (t typeMeta, err error) {
	err = fields(message, func(num protowire.Number, content []byte) error {
		switch num {
		case typeMetaAPIVersion:
			t.apiVersion = string(content)
		case typeMetaKind:
			t.kind = string(content)
		}
		return nil
	})
	return t, err
}

// checkEncoding refuses contents of an envelope that are not the plain message.
func checkEncoding(num protowire.Number, content []byte) error {
	switch {
	case num == unknownContentEncoding && len(content) > 0:
		return fmt.Errorf("envelope has the content encoding %q", content)
	case num == unknownContentType && len(content) > 0 && string(content) != "application/vnd.kubernetes.protobuf":
		return fmt.Errorf("envelope has the content type %q", content)
	}
	return nil
}

// openEnvelope returns the message in an enveloped object; it aliases body.
func openEnvelope(body []byte) (t typeMeta, message []byte, err error) {
	if !bytes.HasPrefix(body, []byte(magic)) {
		return t, nil, fmt.Errorf("%w: the envelope of an object does not begin with its magic bytes", errProto)
	}
	message = []byte{}
	err = fields(body[len(magic):], func(num protowire.Number, content []byte) (err error) {
		switch num {
		case unknownTypeMeta:
			t, err = parseTypeMeta(content)
		case unknownRaw:
			message = content
		default:
			err = checkEncoding(num, content)
		}
		return err
	})
	return t, message, err
}
