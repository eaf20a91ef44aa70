package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// Destination is where events go.
type Destination struct {
	// Path is the file that events are appended to, "-" for Options.Stdout, or "" to record nothing.
	// The file is created with mode 0600.
	Path string
	// MaxSize is the size in bytes above which the file is rotated; 0 lets it grow.
	MaxSize int64
	// MaxBackups is how many rotated files are kept, as Path.1 (the newest), Path.2 and so on.
	MaxBackups int
}

// sink takes whole lines. Only the writer's goroutine uses it.
type sink interface {
	// write reports whether the lines were written. There can be an error even so.
	write(lines []byte) (written bool, err error)
	reopen() error
	close() error
}

// stream is a sink that is no file of its own.
type stream struct{ to io.Writer }

func (s *stream) write(lines []byte) (bool, error) {
	_, err := s.to.Write(lines)
	return err == nil, err
}

func (s *stream) reopen() error { return nil }
func (s *stream) close() error  { return nil }

// file is a file that is rotated when it is full.
type file struct {
	Destination

	f    *os.File // nil after it could not be opened
	size int64
}

func (f *file) open() error {
	opened, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	info, err := opened.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("opening the audit log: %w", err), opened.Close())
	}
	f.f, f.size = opened, info.Size()
	return nil
}

// write appends lines completely or not at all, as far as the file system allows: it truncates a
// part that was written, so that the next line begins a line.
func (f *file) write(lines []byte) (bool, error) {
	if f.f == nil { // it could not be opened the last time
		if err := f.open(); err != nil {
			return false, err
		}
	}
	var rotated error
	if f.MaxSize > 0 && f.size > 0 && f.size+int64(len(lines)) > f.MaxSize {
		if rotated = f.rotate(); f.f == nil {
			return false, rotated
		}
	}
	n, err := f.f.Write(lines)
	if err == nil {
		f.size += int64(n)
		return true, rotated
	}
	if n > 0 {
		if truncated := f.f.Truncate(f.size); truncated != nil {
			f.size += int64(n)
			err = errors.Join(err, truncated)
		}
	}
	return false, err
}

// rotate renames the file to .1, the older ones to the next number, and creates a new one. If it
// cannot be renamed it is opened again and grows further.
func (f *file) rotate() error {
	err := f.close()
	if err == nil {
		err = f.shift()
	}
	if err != nil {
		err = fmt.Errorf("rotating the audit log: %w", err)
	}
	return errors.Join(err, f.open())
}

func (f *file) shift() error {
	if f.MaxBackups <= 0 {
		return ignoreMissing(os.Remove(f.Path))
	}
	for n := f.MaxBackups - 1; n > 0; n-- {
		if err := ignoreMissing(os.Rename(f.backup(n), f.backup(n+1))); err != nil {
			return err
		}
	}
	return ignoreMissing(os.Rename(f.Path, f.backup(1)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *file) backup(n int) string { return f.Path + "." + strconv.Itoa(n) }

func (f *file) reopen() error {
	err := f.close()
	return errors.Join(err, f.open())
}

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}
