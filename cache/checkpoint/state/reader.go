package state

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
)

// Reader reads a checkpoint. It implements checkpoint.Reader.
type Reader struct {
	dir    *Dir
	name   string // of the file
	layout *layout
	file   vfs.File
	in     *bufio.Reader
	header []byte
	end    int64  // of the last block read
	size   int64  // of the file
	index  uint64 // of the next block
	last   kind   // of the last block read
}

// readAhead is the size of the read buffer.
const readAhead = 1 << 20

// Open implements checkpoint.Storage.
func (d *Dir) Open(name string) (checkpoint.Reader, error) {
	r, err := d.openFile(name+imageExt, "", kindHeader)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// openFile opens a file and reads its first block, which must have kind first.
func (d *Dir) openFile(name, bound string, first kind) (*Reader, error) {
	if !d.opened() {
		return nil, fmt.Errorf("reading the state: %w", fs.ErrNotExist)
	}
	f, err := d.fs.Open(d.file(name))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	r := &Reader{dir: d, name: name, file: f, in: bufio.NewReaderSize(f, readAhead)}
	if err := r.begin(bound, first); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *Reader) begin(bound string, first kind) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.size = info.Size()
	preamble := make([]byte, preambleSize)
	if _, err := io.ReadFull(r.in, preamble); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r.end = int64(preambleSize)
	identity, err := parsePreamble(preamble, r.dir.key != nil)
	if err != nil {
		return err
	}
	if r.layout, err = newLayout(r.dir.key, identity, bound); err != nil {
		return err
	}
	b, err := r.next()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if b.kind != first {
		return fmt.Errorf("%w: block of kind %d, want %d", ErrDamaged, b.kind, first)
	}
	r.header, err = b.content()
	return err
}

// Header implements checkpoint.Reader.
func (r *Reader) Header() []byte { return r.header }

// Next implements checkpoint.Reader.
func (r *Reader) Next() (checkpoint.Block, error) {
	b, err := r.next()
	if err != nil {
		return nil, err
	}
	switch b.kind {
	case kindObjects:
		return b, nil
	case kindCommit:
		// It is read now, because the blocks it commits are dropped without it.
		if b.commit, err = b.content(); err != nil {
			r.last = 0 // nothing may be appended to it
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("%w: unknown block kind %d", ErrDamaged, b.kind)
}

func (r *Reader) next() (*block, error) {
	var frame [frameSize]byte
	if _, err := io.ReadFull(r.in, frame[:]); err == io.EOF {
		return nil, io.EOF
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	n := int64(binary.LittleEndian.Uint32(frame[:]))
	if n > maxBlock || n > r.size-r.end-frameSize {
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrDamaged, n)
	}
	b := &block{layout: r.layout, kind: kind(frame[8]), index: r.index, sealed: make([]byte, n)}
	if _, err := io.ReadFull(r.in, b.sealed); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if checksum(r.layout.place(b.kind, b.index), b.sealed) != binary.LittleEndian.Uint32(frame[4:]) {
		return nil, fmt.Errorf("%w: wrong checksum of block %d", ErrDamaged, b.index)
	}
	r.index++
	r.end += frameSize + n
	r.last = b.kind
	return b, nil
}

// Append implements checkpoint.Reader.
func (r *Reader) Append() (checkpoint.Writer, error) {
	if r.end != r.size || r.last != kindCommit || !r.dir.opened() {
		return nil, nil
	}
	f, err := r.dir.fs.OpenReadWrite(r.dir.file(r.name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("writing the state: %w", cause(err))
	}
	return &Writer{dir: r.dir, target: r.name, layout: r.layout, file: f, offset: r.end, index: r.index}, nil
}

// Close implements checkpoint.Reader.
func (r *Reader) Close() error { return r.file.Close() }
