package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	magicName = "kubeweir snapshot "
	magic     = magicName + "1\n"
)

// Limits of a file, so that a damaged length does not allocate memory.
const (
	maxHeader = 1 << 20
	maxKey    = 1 << 20
	maxValue  = 1 << 30
)

// MediaType is the type of a file in HTTP.
const MediaType = "application/vnd.kubeweir.snapshot"

// bufferSize is the size of reads and writes, in bytes.
const bufferSize = 256 << 10

// Header describes the contents of a file.
type Header struct {
	// Revision is the revision of the store at which its keys were read.
	Revision uint64 `json:"revision"`
	// Keys is the number of keys.
	Keys int `json:"keys"`
	// Created is when the keys were read.
	Created time.Time `json:"created"`
	// Cluster is the UID of the namespace kube-system, "" if unknown.
	Cluster string `json:"cluster,omitempty"`
	// Program is the name and the version of the program that wrote the file.
	Program string `json:"program,omitempty"`
}

// Write writes a file with the keys of s. The header's Revision and Keys are those of s. each iterates
// over the keys, as s.Each does.
func Write(w io.Writer, h Header, each func(f func(storage.Entry) error) error) error {
	sum := sha256.New()
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), bufferSize)
	header, err := json.Marshal(h)
	if err != nil {
		return err
	}
	// An error of b is returned by its Flush.
	_, _ = b.WriteString(magic)
	_, _ = b.Write(binary.AppendUvarint(nil, uint64(len(header))))
	_, _ = b.Write(header)
	n := 0
	var buf []byte
	if err := each(func(e storage.Entry) error {
		switch {
		case e.Key == "" || len(e.Key) > maxKey || len(e.Value) > maxValue:
			return fmt.Errorf("key %.100q: %w", e.Key, storage.ErrTooLarge)
		case e.Revision == 0 || e.Revision > h.Revision:
			return fmt.Errorf("key %q has revision %d, newer than the store's, %d", e.Key, e.Revision, h.Revision)
		}
		n++
		buf = binary.AppendUvarint(buf[:0], uint64(len(e.Key)))
		buf = append(buf, e.Key...)
		buf = binary.AppendUvarint(buf, e.Revision)
		buf = binary.AppendUvarint(buf, uint64(expiry(e.Expires)))
		buf = binary.AppendUvarint(buf, uint64(len(e.Value)))
		if _, err := b.Write(buf); err != nil {
			return err
		}
		_, err := b.Write(e.Value)
		return err
	}); err != nil {
		return err
	}
	if n != h.Keys {
		return fmt.Errorf("the store has %d keys instead of %d", n, h.Keys)
	}
	_ = b.WriteByte(0)
	if err := b.Flush(); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// expiry returns t in milliseconds of Unix time, 0 for never.
func expiry(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 1)
}

// A DamagedError is the error of a file that is not as it was written.
type DamagedError struct {
	// Offset is the byte at which the damage was noticed; it may be before that.
	Offset int64
	What   string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("damaged at offset %d: %s", e.Offset, e.What)
}

// ErrFormat is the error of a file that is no snapshot.
var ErrFormat = errors.New("not a kubeweir snapshot")

// A Reader reads a file. The keys that it returns may be damaged unless the last Next returns io.EOF.
type Reader struct {
	header Header
	in     *bufio.Reader
	sum    hash.Hash
	offset int64
	keys   int
	key    []byte
	value  []byte
	digest []byte
	err    error // final
}

// NewReader reads the header of a file.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, bufferSize), sum: sha256.New()}
	start, err := r.in.Peek(len(magic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch name, found := bytes.CutPrefix(start, []byte(magicName)); {
	case !found:
		return nil, ErrFormat
	case string(start) != magic:
		return nil, fmt.Errorf("%w of a version that this program reads: version %.10q", ErrFormat, bytes.TrimSpace(name))
	}
	if r.value, err = r.bytes(r.value, len(magic)); err != nil {
		return nil, err
	}
	header, err := r.field(nil, maxHeader, "the header")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(header, &r.header); err != nil {
		return nil, r.damaged("the header: " + err.Error())
	}
	return r, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Size returns the number of bytes read.
func (r *Reader) Size() int64 { return r.offset }

// Digest returns the SHA-256 in the file, after Next has returned io.EOF.
func (r *Reader) Digest() []byte { return r.digest }

// Next returns the next key, whose value is valid until the next call. The error io.EOF says that the file
// is complete, and its checksum right.
func (r *Reader) Next() (storage.Entry, error) {
	if r.err != nil {
		return storage.Entry{}, r.err
	}
	e, err := r.next()
	r.err = err
	return e, err
}

func (r *Reader) next() (e storage.Entry, err error) {
	if r.key, err = r.field(r.key[:0], maxKey, "a key"); err != nil {
		return e, err
	}
	if len(r.key) == 0 {
		return e, r.end()
	}
	e.Key = string(r.key)
	if e.Revision, err = r.number(); err != nil {
		return e, err
	}
	expires, err := r.number()
	if err != nil {
		return e, err
	}
	if e.Revision == 0 || e.Revision > r.header.Revision || expires > math.MaxInt64 {
		return e, r.damaged(fmt.Sprintf("the revision or the expiry of key %q", e.Key))
	}
	if expires > 0 {
		e.Expires = time.UnixMilli(int64(expires))
	}
	if r.value, err = r.field(r.value[:0], maxValue, "a value"); err != nil {
		return e, err
	}
	e.Value = r.value
	r.keys++
	return e, nil
}

// end checks the checksum, and returns io.EOF.
func (r *Reader) end() error {
	want := r.sum.Sum(nil)
	got, err := r.bytes(nil, len(want))
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, want):
		return r.damaged("the checksum is not that of the contents")
	case r.keys != r.header.Keys:
		return r.damaged(fmt.Sprintf("%d keys instead of %d", r.keys, r.header.Keys))
	}
	if _, err := r.in.ReadByte(); err == nil {
		return r.damaged("there is more behind the end")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	r.digest = got
	return io.EOF
}

func (r *Reader) damaged(what string) error { return &DamagedError{Offset: r.offset, What: what} }

func (r *Reader) number() (uint64, error) {
	n, err := binary.ReadUvarint(byteReader{r})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, r.damaged("the file is cut off")
	case err != nil && errors.As(err, new(*readError)):
		return 0, err
	case err != nil:
		return 0, r.damaged("a number")
	}
	return n, nil
}

// byteReader reads single bytes.
type byteReader struct{ r *Reader }

// readError is an error of the reader below.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// ReadByte implements io.ByteReader.
func (b byteReader) ReadByte() (byte, error) {
	c, err := b.r.in.ReadByte()
	if err == nil {
		b.r.offset++
		_, _ = b.r.sum.Write([]byte{c})
	} else if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = &readError{err}
	}
	return c, err
}

// field appends a length and so many bytes to buf.
func (r *Reader) field(buf []byte, limit uint64, what string) ([]byte, error) {
	n, err := r.number()
	if err != nil {
		return buf, err
	}
	if n > limit {
		return buf, r.damaged(fmt.Sprintf("the length of %s, %d", what, n))
	}
	return r.bytes(buf, int(n))
}

// bytes appends n bytes to buf. It allocates memory for bytes that are there only.
func (r *Reader) bytes(buf []byte, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, 1<<20)
		at := len(buf)
		buf = slices.Grow(buf, step)[:at+step]
		read, err := io.ReadFull(r.in, buf[at:])
		r.offset += int64(read)
		_, _ = r.sum.Write(buf[at : at+read])
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return buf, r.damaged("the file is cut off")
		case err != nil:
			return buf, err
		}
		n -= step
	}
	return buf, nil
}
