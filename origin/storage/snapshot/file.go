package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// File is a file that appears under its name when it is complete and on disk. Its mode is 0600. Until
// then it has a name of its own in the same folder, which a process that is killed leaves behind.
type File struct {
	*os.File
	path      string
	overwrite bool
}

// Create creates a file. If overwrite is false and path exists, the error is an fs.ErrExist, here or
// from Commit.
func Create(path string, overwrite bool) (*File, error) {
	switch info, err := os.Lstat(path); {
	case err != nil:
	case info.IsDir():
		return nil, &fs.PathError{Op: "create", Path: path, Err: syscall.EISDIR}
	case !overwrite:
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path, overwrite: overwrite}, nil
}

// Abort removes the file. After Commit it does nothing.
func (f *File) Abort() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// Commit writes the file to disk and gives it its name. It removes the file if that fails.
func (f *File) Commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = f.publish()
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

func (f *File) publish() error {
	if f.overwrite {
		return os.Rename(f.Name(), f.path)
	}
	// Unlike a rename, a link fails if the name is taken.
	err := os.Link(f.Name(), f.path)
	switch {
	case err == nil:
		return os.Remove(f.Name())
	case errors.Is(err, fs.ErrExist):
		return err
	}
	// The file system has no links.
	if _, err := os.Lstat(f.path); err == nil {
		return &fs.PathError{Op: "create", Path: f.path, Err: fs.ErrExist}
	}
	return os.Rename(f.Name(), f.path)
}

// SyncDir writes the names in a folder to disk. On Windows it does nothing, because folders cannot be
// synced there.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
