//go:build linux || darwin

package main

import (
	"context"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// size is that of the terminal, 0 of what is none.
func (s *screen) size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// readKeys has keys read as they are pressed, and not shown; nothing changes where standard
// input is no terminal. What is returned has it as it was.
func (s *screen) readKeys() (restore func(), err error) {
	in := int(os.Stdin.Fd())
	before, err := unix.IoctlGetTermios(in, getTermios)
	if err != nil {
		return func() {}, nil
	}
	raw := *before
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 2 // a read waits for a fifth of a second
	if err := unix.IoctlSetTermios(in, setTermios, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(in, setTermios, before) }, nil
}

// waitForKey returns when one of keys was pressed, or ctx has ended.
func (s *screen) waitForKey(ctx context.Context, keys string) {
	in := int(os.Stdin.Fd())
	if _, err := unix.IoctlGetTermios(in, getTermios); err != nil {
		<-ctx.Done() // there are no keys
		return
	}
	var key [16]byte
	for ctx.Err() == nil {
		n, err := unix.Read(in, key[:])
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			<-ctx.Done()
			return
		}
		if n > 0 && strings.ContainsAny(keys, string(key[:n])) {
			return
		}
	}
}
