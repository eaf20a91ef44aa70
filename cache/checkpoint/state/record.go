package state

import (
	"context"
	"errors"
	"fmt"
)

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
