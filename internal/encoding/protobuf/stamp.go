package protobuf

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Stamp implements encoding.Codec. The number of bytes of the metadata's length, which precedes it,
// may change.
func (Codec) Stamp(o encoding.Encoded, rv uint64) (encoding.Encoded, error) {
	head, ok := metadataHead(o)
	if !ok {
		return encoding.Encoded{}, encoding.ErrSplit
	}
	var room [20]byte
	metadata, err := rewriteMetadata(o.Raw[o.MetaStart:o.MetaEnd], strconv.AppendUint(room[:0], rv, 10), nil, false)
	if err != nil {
		return encoding.Encoded{}, err
	}
	raw := append(make([]byte, 0, len(o.Raw)+len(room)+2), o.Raw[:head]...)
	raw = appendBytesField(raw, objectMetadata, metadata)
	end := len(raw)
	stamped := encoding.Encoded{Raw: append(raw, o.Raw[o.MetaEnd:]...), MetaStart: int32(end - len(metadata)), MetaEnd: int32(end)}
	if o.ManagedEnd > 0 {
		err = findManaged(&stamped)
	}
	return stamped, err
}

// findManaged finds the managedFields of an object whose metadata is known.
func findManaged(o *encoding.Encoded) error {
	start := int(o.MetaStart)
	err := walk(o.Raw[o.MetaStart:o.MetaEnd], func(f field) error {
		end := int(o.MetaStart) + f.end
		if f.num == metaManagedFields {
			o.FoundManaged(start, end)
		}
		start = end
		return nil
	})
	o.EndManaged(true)
	return err
}

// metadataHead returns where the metadata field begins, including its tag.
func metadataHead(o encoding.Encoded) (int, bool) {
	start := int(o.MetaEnd) - fieldSize(objectMetadata, int(o.MetaEnd-o.MetaStart))
	return start, start >= 0 && o.Raw[start] == objectMetadata<<3|byte(protowire.BytesType)
}

// rewriteMetadata copies an ObjectMeta with another resourceVersion. unannotated removes its
// annotations; annotation (nil: none) is inserted at its place in the order of fields.
func rewriteMetadata(metadata, rv, annotation []byte, unannotated bool) ([]byte, error) {
	out := make([]byte, 0, len(metadata)+len(rv)+len(annotation)+16)
	stamped, annotated := false, annotation == nil
	before := func(num protowire.Number) {
		if !stamped && num >= metaResourceVersion {
			out, stamped = appendBytesField(out, metaResourceVersion, rv), true
		}
		if !annotated && num > metaAnnotations {
			out, annotated = appendBytesField(out, metaAnnotations, annotation), true
		}
	}
	for len(metadata) > 0 {
		num, _, n := protowire.ConsumeField(metadata)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		before(num)
		if num != metaResourceVersion && !(unannotated && num == metaAnnotations) {
			out = append(out, metadata[:n]...)
		}
		metadata = metadata[n:]
	}
	before(protowire.MaxValidNumber)
	return out, nil
}
