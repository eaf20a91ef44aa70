package protobuf

import (
	"bufio"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Reference names an object and one version of it. The slices are valid until the callback that
// receives it returns.
type Reference struct {
	Namespace, Name, ResourceVersion []byte
}

// ReadVersions reads a PartialObjectMetadataList in protobuf and calls visit for each item, in
// order. limit and errors are as for Codec.ReadList. It does not retain what it reads.
func ReadVersions(r io.Reader, limit int, visit func(Reference) error) (encoding.ListMeta, error) {
	l := list{r: bufio.NewReaderSize(r, encoding.ListBuffer), limit: limit, borrow: true}
	l.visit = func(item []byte) error {
		ref, err := parseReference(item)
		if err != nil {
			return err
		}
		return visit(ref)
	}
	if err := l.read(); err != nil {
		return encoding.ListMeta{}, err
	}
	return l.meta, nil
}

// parseReference parses the names and the version of any object.
func parseReference(object []byte) (ref Reference, err error) {
	err = walk(object, func(f field) error {
		if f.num != objectMetadata || f.typ != protowire.BytesType {
			return nil
		}
		return walk(f.bytes, func(f field) error {
			if f.typ != protowire.BytesType {
				return nil
			}
			switch f.num {
			case metaName:
				ref.Name = f.bytes
			case metaNamespace:
				ref.Namespace = f.bytes
			case metaResourceVersion:
				ref.ResourceVersion = f.bytes
			}
			return nil
		})
	})
	return ref, err
}
