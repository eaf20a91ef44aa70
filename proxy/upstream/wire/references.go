package wire

import (
	"bufio"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Reference names an object and one version of it. The slices are valid until the
// call that they were given to returns.
type Reference struct {
	Namespace, Name, ResourceVersion []byte
}

// ReadReferences reads a PartialObjectMetadataList in protobuf and calls visit for
// each item, in order; limit and errors are as for ReadProtobufList. What it reads
// is not kept.
func ReadReferences(r io.Reader, limit int, visit func(Reference) error) (ListMeta, error) {
	l := protobufList{r: bufio.NewReaderSize(r, listBuffer), limit: limit, borrow: true}
	l.visit = func(item []byte) error {
		ref, err := parseReference(item)
		if err != nil {
			return err
		}
		return visit(ref)
	}
	if err := l.read(); err != nil {
		return ListMeta{}, err
	}
	return l.meta, nil
}

// parseReference reads the names and the version of any object.
func parseReference(object []byte) (ref Reference, err error) {
	err = fields(object, func(num protowire.Number, content []byte) error {
		if num != objectMetadata {
			return nil
		}
		return fields(content, func(num protowire.Number, content []byte) error {
			switch num {
			case objectMetaName:
				ref.Name = content
			case objectMetaNamespace:
				ref.Namespace = content
			case objectMetaResourceVersion:
				ref.ResourceVersion = content
			}
			return nil
		})
	})
	return ref, err
}
