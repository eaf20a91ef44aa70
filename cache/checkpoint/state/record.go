package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
)

// recordExt is the file extension of records.
const recordExt = ".record"

// SaveRecord stores content under a name, replacing any previous record. The file counts against
// the size limit like a checkpoint.
func (d *Dir) SaveRecord(ctx context.Context, name string, content []byte) error {
	if !d.opened() {
		return errClosed
	}
	identity := randomIdentity()
	l, err := d.recordLayout(name, identity)
	if err != nil {
		return err
	}
	out := appendPreamble(nil, d.key != nil, identity)
	out, _ = l.appendBlock(out, kindRecord, 0, content, nil)
	if !d.room(int64(len(out))) {
		return checkpoint.ErrFull
	}
	if err := d.pacer.wait(ctx, len(out)); err != nil {
		return err
	}
	if err := d.writeRecord(name, out); err != nil {
		return fmt.Errorf("writing the state: %w", cause(err))
	}
	return nil
}

func (d *Dir) writeRecord(name string, content []byte) error {
	begun := name + recordExt + newExt
	f, err := d.create(begun)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err = errors.Join(err, f.SyncData(), f.Close()); err != nil {
		return errors.Join(err, d.fs.Remove(d.file(begun)))
	}
	d.account(begun, int64(len(content)))
	if err := d.rename(begun, name+recordExt); err != nil {
		return err
	}
	d.moved(begun, name+recordExt)
	return nil
}

// LoadRecord returns the content stored under a name. The error wraps fs.ErrNotExist if there is
// none; any other error means that the record cannot be used.
func (d *Dir) LoadRecord(name string) ([]byte, error) {
	if !d.opened() {
		return nil, errClosed
	}
	f, err := d.fs.Open(d.file(name + recordExt))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	file, err := io.ReadAll(io.LimitReader(f, maxBlock))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading the state: %w", cause(err))
	}
	identity, err := parsePreamble(file, d.key != nil)
	if err != nil {
		return nil, err
	}
	l, err := d.recordLayout(name, identity)
	if err != nil {
		return nil, err
	}
	block := file[preambleSize:]
	if len(block) < frameSize || int(binary.LittleEndian.Uint32(block)) != len(block)-frameSize || kind(block[8]) != kindRecord {
		return nil, fmt.Errorf("%w: not a record", ErrDamaged)
	}
	if checksum(l.place(kindRecord, 0), block[frameSize:]) != binary.LittleEndian.Uint32(block[4:]) {
		return nil, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	return l.unpack(nil, kindRecord, 0, block[frameSize:])
}

// recordLayout returns the layout of a record, which is bound to the cluster and the name.
func (d *Dir) recordLayout(name string, identity []byte) (*layout, error) {
	l, err := newLayout(d.key, identity)
	if l != nil {
		l.name = name + "/" + d.cluster
	}
	return l, err
}

// RemoveRecord removes the record with the given name, if there is one.
func (d *Dir) RemoveRecord(name string) error {
	if !d.opened() {
		return nil
	}
	if err := d.fs.Remove(d.file(name + recordExt)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the state: %w", cause(err))
	}
	d.account(name+recordExt, 0)
	return nil
}
