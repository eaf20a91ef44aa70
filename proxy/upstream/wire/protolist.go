package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReadProtobufList reads a list in its envelope and calls visit for the bare
// message of each item, in order; visit may keep it. No item may have more than
// limit bytes. An error of visit is returned as it is, and ends the reading.
func ReadProtobufList(r io.Reader, limit int, visit func(item []byte) error) (ListMeta, error) {
	l := protobufList{r: bufio.NewReaderSize(r, listBuffer), limit: limit, visit: visit}
	if err := l.read(); err != nil {
		return ListMeta{}, err
	}
	return l.meta, nil
}

type protobufList struct {
	r     *bufio.Reader
	limit int
	visit func(item []byte) error
	meta  ListMeta
	raw   bool // the envelope has contents

	borrow  bool // items are visit's only until it returns
	scratch []byte
}

// unbounded stands for the length of a message that ends with the stream.
const unbounded = int64(-1)

func (l *protobufList) read() error {
	var head [len(magic)]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return inside(err)
	}
	if string(head[:]) != magic {
		return fmt.Errorf("%w: the list does not begin with its magic bytes", errProto)
	}
	err := l.message(unbounded, func(num protowire.Number, size int64) error {
		switch num {
		case unknownTypeMeta:
			content, err := l.take(size)
			if err != nil {
				return err
			}
			t, err := parseTypeMeta(content)
			l.meta.APIVersion, l.meta.Kind = t.apiVersion, t.kind
			return err
		case unknownRaw:
			if l.raw {
				return fmt.Errorf("%w: the list has contents twice", errProto)
			}
			l.raw = true
			return l.message(size, l.listField)
		}
		content, err := l.take(size)
		if err != nil {
			return err
		}
		return checkEncoding(num, content)
	})
	if err == nil && !l.raw {
		// Taking it for an empty list would delete everything that is cached.
		err = fmt.Errorf("%w: the list has no contents", errProto)
	}
	return err
}

func (l *protobufList) listField(num protowire.Number, size int64) error {
	content, err := l.take(size)
	switch {
	case err != nil:
		return err
	case num == listItems:
		return l.visit(content)
	case num != listMetadata:
		return nil
	}
	var meta metav1.ListMeta
	if err := meta.Unmarshal(content); err != nil {
		return fmt.Errorf("%w: metadata of the list: %w", errProto, err)
	}
	l.meta.take(&meta)
	return nil
}

// take reads size bytes into an allocation of that size, or, with borrow, into one
// that the next call uses again.
func (l *protobufList) take(size int64) ([]byte, error) {
	if size > int64(l.limit) {
		return nil, tooLarge("item of the list", l.limit)
	}
	var content []byte
	if l.borrow {
		l.scratch = slices.Grow(l.scratch[:0], int(size))
		content = l.scratch[:size]
	} else {
		content = make([]byte, size)
	}
	if _, err := io.ReadFull(l.r, content); err != nil {
		return nil, inside(err)
	}
	return content, nil
}

// message reads the fields of a message of the given size. visit consumes the
// content of each length-delimited field, of which it gets the size.
func (l *protobufList) message(size int64, visit func(num protowire.Number, size int64) error) error {
	for left := size; left != 0; {
		tag, n, err := l.varint(left)
		if errors.Is(err, io.EOF) && left == unbounded {
			return nil
		}
		if err != nil {
			return inside(err)
		}
		left = consumed(left, n)
		num, typ := protowire.DecodeTag(tag)
		if num < 1 {
			return fmt.Errorf("%w: field number %d", errProto, num)
		}
		n, err = l.field(num, typ, left, visit)
		if err != nil {
			return err
		}
		left = consumed(left, n)
	}
	return nil
}

// field reads one field after its tag and returns how many bytes it had.
func (l *protobufList) field(num protowire.Number, typ protowire.Type, left int64, visit func(protowire.Number, int64) error) (int64, error) {
	var size int64
	switch typ {
	case protowire.VarintType:
		_, n, err := l.varint(left)
		return n, inside(err)
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		content, n, err := l.varint(left)
		if err != nil {
			return 0, inside(err)
		}
		left = consumed(left, n)
		if content > 1<<62 || left != unbounded && int64(content) > left {
			return 0, fmt.Errorf("%w: a field is longer than its message", errProto)
		}
		return n + int64(content), visit(num, int64(content))
	default:
		return 0, fmt.Errorf("%w: wire type %d", errProto, typ)
	}
	if left != unbounded && size > left {
		return 0, fmt.Errorf("%w: a field is longer than its message", errProto)
	}
	_, err := l.r.Discard(int(size))
	return size, inside(err)
}

// varint reads one varint of at most left bytes and returns its length, too. Its
// error is io.EOF only before the first byte.
func (l *protobufList) varint(left int64) (value uint64, n int64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		if left != unbounded && n >= left {
			return 0, n, fmt.Errorf("%w: a field is longer than its message", errProto)
		}
		b, err := l.r.ReadByte()
		if err != nil {
			if n > 0 {
				err = inside(err)
			}
			return 0, n, err
		}
		n++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, n, nil
		}
	}
	return 0, n, fmt.Errorf("%w: a varint is too long", errProto)
}

func consumed(left, n int64) int64 {
	if left == unbounded {
		return unbounded
	}
	return left - n
}
