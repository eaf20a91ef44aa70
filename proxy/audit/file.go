package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// sink takes whole lines. It is used by the writer's goroutine only.
type sink interface {
	// write tells whether the lines were written; there can be something to
	// complain of even so.
	write(lines []byte) (written bool, err error)
	reopen() error
	close() error
	name() string // for log lines
	limit(maxSize int64, maxBackups int)
}

// stream is a sink that is not a file of ours.
type stream struct{ to io.Writer }

func (s *stream) write(lines []byte) (bool, error) {
	_, err := s.to.Write(lines)
	return err == nil, err
}

func (s *stream) reopen() error    { return nil }
func (s *stream) close() error     { return nil }
func (s *stream) name() string     { return "-" }
func (s *stream) limit(int64, int) {}

// file is a file that is put aside when it is full.
type file struct {
	path       string
	maxSize    int64
	maxBackups int

	f    *os.File // nil after it could not be opened
	size int64
}

func (f *file) open() error {
	opened, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
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

// write appends lines, whole or not at all as far as the file system lets it: a
// part that was written is cut off again, so that the next line begins a line.
func (f *file) write(lines []byte) (bool, error) {
	if f.f == nil { // it could not be opened the last time
		if err := f.open(); err != nil {
			return false, err
		}
	}
	var rotated error
	if f.maxSize > 0 && f.size > 0 && f.size+int64(len(lines)) > f.maxSize {
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
		if cut := f.f.Truncate(f.size); cut != nil {
			f.size += int64(n)
			err = errors.Join(err, cut)
		}
	}
	return false, err
}

// rotate puts the file aside as .1, the older ones one further, and begins a new
// one. When it cannot be put aside it is opened again and goes on growing.
func (f *file) rotate() error {
	err := f.close()
	if err == nil {
		err = f.shift()
	}
	if err != nil {
		err = fmt.Errorf("putting the audit log aside: %w", err)
	}
	return errors.Join(err, f.open())
}

func (f *file) shift() error {
	if f.maxBackups <= 0 {
		return ignoreMissing(os.Remove(f.path))
	}
	for n := f.maxBackups - 1; n > 0; n-- {
		if err := ignoreMissing(os.Rename(f.backup(n), f.backup(n+1))); err != nil {
			return err
		}
	}
	return ignoreMissing(os.Rename(f.path, f.backup(1)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *file) name() string { return f.path }

func (f *file) limit(maxSize int64, maxBackups int) { f.maxSize, f.maxBackups = maxSize, maxBackups }

func (f *file) backup(n int) string { return f.path + "." + strconv.Itoa(n) }

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
