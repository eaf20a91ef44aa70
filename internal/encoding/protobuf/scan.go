package protobuf

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// scan is an encoding.Scan with the methods that fill it from protobuf.
type scan encoding.Scan

// Scan implements encoding.Codec. Submessages without anything of interest are skipped.
func (Codec) Scan(s *encoding.Scan) error {
	sc, root, found := (*scan)(s), s.Fields, false
	err := walk(sc.Raw, func(f field) error {
		if f.num == objectMetadata {
			if f.typ != protowire.BytesType {
				return errWireType
			}
			found = true
			sc.MetaStart, sc.MetaEnd = int32(f.start), int32(f.end)
			return sc.metadata(f.bytes)
		}
		return sc.field(root.Numbered(f.num), f)
	})
	if err == nil && !found {
		err = encoding.ErrNoMetadata
	}
	_, usual := metadataHead(sc.Encoded)
	s.EndManaged(usual)
	return err
}

// field reads a field that node describes; a nil node has nothing of interest.
func (sc *scan) field(node *encoding.Field, f field) error {
	if node == nil {
		return nil
	}
	if node.Slot != encoding.NoSlot {
		return sc.value(node, f)
	}
	if f.typ != protowire.BytesType {
		return errWireType
	}
	return walk(f.bytes, func(f field) error { return sc.field(node.Numbered(f.num), f) })
}

func (sc *scan) value(node *encoding.Field, f field) error {
	want := protowire.VarintType
	if node.Kind == encoding.String {
		want = protowire.BytesType
	}
	if f.typ != want {
		return errWireType
	}
	start := len(sc.Text)
	switch node.Kind {
	case encoding.String:
		sc.Values[node.Slot] = f.bytes
		return nil
	case encoding.Bool:
		sc.Text = strconv.AppendBool(sc.Text, f.varint != 0)
	case encoding.Int:
		sc.Text = strconv.AppendInt(sc.Text, int64(f.varint), 10)
	}
	sc.Values[node.Slot] = sc.Text[start:]
	return nil
}

func (sc *scan) metadata(msg []byte) error {
	before := 0 // where the current field begins
	sc.ManagedStart, sc.ManagedEnd = 0, 0
	return walk(msg, func(f field) error {
		start := before
		before = f.end
		var text *[]byte
		switch f.num {
		case metaName:
			text = &sc.Name
		case metaNamespace:
			text = &sc.Namespace
		case metaUID:
			text = &sc.UID
		case metaResourceVersion:
			text = &sc.ResourceVersion
		case metaCreation, metaLabels, metaManagedFields:
		default:
			return nil
		}
		if f.typ != protowire.BytesType {
			return errWireType
		}
		switch f.num {
		case metaCreation:
			return sc.time(f.bytes)
		case metaLabels:
			return sc.label(f.bytes)
		case metaManagedFields:
			(*encoding.Scan)(sc).FoundManaged(int(sc.MetaStart)+start, int(sc.MetaStart)+f.end)
			return nil
		}
		*text = f.bytes
		return nil
	})
}

func (sc *scan) time(msg []byte) error {
	return walk(msg, func(f field) error {
		if f.num == timeSeconds {
			if f.typ != protowire.VarintType {
				return errWireType
			}
			sc.Creation = int64(f.varint)
		}
		return nil
	})
}

func (sc *scan) label(msg []byte) error {
	l, err := mapEntry(msg)
	sc.Labels = append(sc.Labels, l)
	return err
}
