package protobuf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// ReadList implements encoding.Codec. Items are bare messages.
func (Codec) ReadList(r io.Reader, opts encoding.ReadOptions, visit func(item []byte) error) (encoding.ListMeta, error) {
	l := list{r: bufio.NewReaderSize(r, encoding.ListBuffer), limit: opts.Limit, visit: visit}
	if err := l.read(); err != nil {
		return encoding.ListMeta{}, err
	}
	return l.meta, nil
}

// list reads a list from a stream, by the lengths in it; walk needs the whole message.
type list struct {
	r     *bufio.Reader
	limit int
	visit func(item []byte) error
	meta  encoding.ListMeta
	raw   bool // whether the envelope has contents

	borrow  bool // items belong to visit only until it returns
	scratch []byte
}

// unbounded is the length of a message that ends with the stream.
const unbounded = int64(-1)

func (l *list) read() error {
	var head [len(magic)]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return encoding.Inside(err)
	}
	if string(head[:]) != magic {
		return fmt.Errorf("%w: the list does not begin with its magic bytes", errMalformed)
	}
	err := l.message(unbounded, func(num protowire.Number, size int64) error {
		switch num {
		case unknownTypeMeta:
			content, err := l.take(size)
			if err != nil {
				return err
			}
			l.meta.APIVersion, l.meta.Kind, err = parseTypeMeta(content)
			return err
		case unknownRaw:
			if l.raw {
				return fmt.Errorf("%w: the list has contents twice", errMalformed)
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
		// Treating it as an empty list would delete everything that is cached.
		err = fmt.Errorf("%w: the list has no contents", errMalformed)
	}
	return err
}

func (l *list) listField(num protowire.Number, size int64) error {
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
		return fmt.Errorf("%w: metadata of the list: %w", errMalformed, err)
	}
	l.meta.Take(&meta)
	return nil
}

// take reads size bytes into an allocation of that size or, with borrow, into one that the next
// call reuses.
func (l *list) take(size int64) ([]byte, error) {
	if size > int64(l.limit) {
		return nil, encoding.TooLarge("item of the list", l.limit)
	}
	var content []byte
	if l.borrow {
		l.scratch = slices.Grow(l.scratch[:0], int(size))
		content = l.scratch[:size]
	} else {
		content = make([]byte, size)
	}
	if _, err := io.ReadFull(l.r, content); err != nil {
		return nil, encoding.Inside(err)
	}
	return content, nil
}

// message reads the fields of a message of the given size. visit is called with the size of each
// length-delimited field, and consumes its content.
func (l *list) message(size int64, visit func(num protowire.Number, size int64) error) error {
	for left := size; left != 0; {
		tag, n, err := l.varint(left)
		if errors.Is(err, io.EOF) && left == unbounded {
			return nil
		}
		if err != nil {
			return encoding.Inside(err)
		}
		left = consumed(left, n)
		num, typ := protowire.DecodeTag(tag)
		if num < 1 {
			return fmt.Errorf("%w: field number %d", errMalformed, num)
		}
		n, err = l.field(num, typ, left, visit)
		if err != nil {
			return err
		}
		left = consumed(left, n)
	}
	return nil
}

// field reads one field after its tag and returns its size in bytes.
func (l *list) field(num protowire.Number, typ protowire.Type, left int64, visit func(protowire.Number, int64) error) (int64, error) {
	var size int64
	switch typ {
	case protowire.VarintType:
		_, n, err := l.varint(left)
		return n, encoding.Inside(err)
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		content, n, err := l.varint(left)
		if err != nil {
			return 0, encoding.Inside(err)
		}
		left = consumed(left, n)
		if content > 1<<62 || left != unbounded && int64(content) > left {
			return 0, fmt.Errorf("%w: a field is longer than its message", errMalformed)
		}
		return n + int64(content), visit(num, int64(content))
	default:
		return 0, fmt.Errorf("%w: wire type %d", errMalformed, typ)
	}
	if left != unbounded && size > left {
		return 0, fmt.Errorf("%w: a field is longer than its message", errMalformed)
	}
	_, err := l.r.Discard(int(size))
	return size, encoding.Inside(err)
}

// varint reads one varint of at most left bytes and also returns its length. The error is io.EOF
// only before the first byte.
func (l *list) varint(left int64) (value uint64, n int64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		if left != unbounded && n >= left {
			return 0, n, fmt.Errorf("%w: a field is longer than its message", errMalformed)
		}
		b, err := l.r.ReadByte()
		if err != nil {
			if n > 0 {
				err = encoding.Inside(err)
			}
			return 0, n, err
		}
		n++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, n, nil
		}
	}
	return 0, n, fmt.Errorf("%w: a varint is too long", errMalformed)
}

func consumed(left, n int64) int64 {
	if left == unbounded {
		return unbounded
	}
	return left - n
}
