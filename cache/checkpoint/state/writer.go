package state

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
)

// pieceSize is the size of a block of objects: large enough to compress well, and small enough for
// parallel readers. Each block is written on its own.
const pieceSize = 256 << 10

// Writer writes a checkpoint. It implements checkpoint.Writer.
type Writer struct {
	dir    *Dir
	target string // name of the complete file
	layout *layout
	file   vfs.File // nil before the first write
	begun  bool     // the file has not replaced target yet
	offset int64    // of out in the file
	index  uint64   // of the next block

	items   []byte // of the next block
	out     []byte // blocks that are not written yet
	scratch []byte
}

// Create implements checkpoint.Storage.
func (d *Dir) Create(_ context.Context, name string, header []byte) (checkpoint.Writer, error) {
	w, err := d.begin(name+imageExt, "", kindHeader, header)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// begin begins a file that replaces target once it is finished. first is its first block.
func (d *Dir) begin(target, bound string, k kind, first []byte) (*Writer, error) {
	if !d.opened() {
		return nil, errClosed
	}
	identity := make([]byte, identitySize)
	_, _ = rand.Read(identity) // never fails
	l, err := newLayout(d.key, identity, bound)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: d, target: target, layout: l, begun: true}
	w.out = appendPreamble(nil, d.key != nil, identity)
	w.block(k, first)
	return w, nil
}

// fileName returns the current name of the file.
func (w *Writer) fileName() string {
	if w.begun {
		return w.target + newExt
	}
	return w.target
}

// Set implements checkpoint.Writer.
func (w *Writer) Set(ctx context.Context, object []byte) error { return w.item(ctx, itemSet, object) }

// Delete implements checkpoint.Writer.
func (w *Writer) Delete(ctx context.Context, key string) error {
	return w.item(ctx, itemDelete, []byte(key))
}

func (w *Writer) item(ctx context.Context, op byte, content []byte) error {
	if len(w.items) > 0 && len(w.items)+len(content) > pieceSize {
		w.flushItems()
		if err := w.write(ctx); err != nil {
			return err
		}
	}
	w.items = append(w.items, op)
	w.items = binary.AppendUvarint(w.items, uint64(len(content)))
	w.items = append(w.items, content...)
	return nil
}

func (w *Writer) flushItems() {
	if len(w.items) > 0 {
		w.block(kindObjects, w.items)
		w.items = w.items[:0]
	}
}

func (w *Writer) block(k kind, content []byte) {
	w.out, w.scratch = w.layout.appendBlock(w.out, k, w.index, content, w.scratch)
	w.index++
}

// write writes the collected blocks to the file, which it creates once there is room for them.
func (w *Writer) write(ctx context.Context) (err error) {
	if !w.dir.room(int64(len(w.out))) {
		return checkpoint.ErrFull
	}
	if err := w.dir.pace(ctx, len(w.out)); err != nil {
		return err
	}
	if w.file == nil {
		if w.file, err = w.dir.create(w.fileName()); err != nil {
			return fmt.Errorf("writing the state: %w", cause(err))
		}
	}
	n, err := w.file.WriteAt(w.out, w.offset)
	w.offset += int64(n)
	w.dir.account(w.fileName(), w.offset)
	w.out = w.out[:0]
	if err != nil {
		return fmt.Errorf("writing the state: %w", cause(err))
	}
	return nil
}

// Commit implements checkpoint.Writer.
func (w *Writer) Commit(ctx context.Context, note []byte) error {
	w.flushItems()
	w.block(kindCommit, note)
	if err := w.finish(ctx); err != nil {
		return err
	}
	if cap(w.items) > 4*pieceSize || cap(w.out) > 4*pieceSize { // after an unusually large object
		w.items, w.out, w.scratch = nil, nil, nil
	}
	return nil
}

// finish writes the collected blocks to disk and makes the file the target.
func (w *Writer) finish(ctx context.Context) error {
	if err := w.write(ctx); err != nil {
		return err
	}
	if err := w.file.SyncData(); err != nil {
		return fmt.Errorf("writing the state: %w", cause(err))
	}
	if w.begun {
		if err := w.dir.rename(w.fileName(), w.target); err != nil {
			return fmt.Errorf("writing the state: %w", cause(err))
		}
		w.begun = false
	}
	return nil
}

// Close closes the file. Data after the last commit is lost.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	if w.begun {
		err = errors.Join(err, w.dir.fs.Remove(w.dir.file(w.fileName())))
		w.dir.account(w.fileName(), 0)
	}
	return err
}

// boundTo returns what a record is bound to: the cluster and the name.
func (d *Dir) boundTo(name string) string { return name + "/" + d.cluster }

// SaveRecord stores content under a name, replacing any previous record. The file counts against
// the size limit like a checkpoint.
func (d *Dir) SaveRecord(ctx context.Context, name string, content []byte) error {
	w, err := d.begin(name+recordExt, d.boundTo(name), kindRecord, content)
	if err != nil {
		return err
	}
	return errors.Join(w.finish(ctx), w.Close())
}

// LoadRecord returns the content stored under a name. The error wraps fs.ErrNotExist if there is
// none; any other error means that the record cannot be used.
func (d *Dir) LoadRecord(name string) ([]byte, error) {
	if !d.opened() {
		return nil, errClosed
	}
	r, err := d.openFile(name+recordExt, d.boundTo(name), kindRecord)
	if err != nil {
		return nil, err
	}
	if r.end != r.size {
		err = fmt.Errorf("%w: not a record", ErrDamaged)
	}
	return r.header, errors.Join(err, r.Close())
}

// RemoveRecord removes the record with the given name, if there is one.
func (d *Dir) RemoveRecord(name string) error { return d.remove(name + recordExt) }
