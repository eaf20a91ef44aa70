package main

import (
	"io"
	"os"
	"strings"
)

// screen is a terminal that is written to over and over. How large it is, and how its keys
// are read, differs by system.
type screen struct {
	out  io.Writer
	file *os.File
}

// openScreen is the terminal that out is, nil if it is none.
func openScreen(out io.Writer) *screen {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	s := &screen{out: out, file: file}
	if width, _ := s.size(); width == 0 {
		return nil
	}
	return s
}

// What a terminal is told (ECMA-48, and xterm's other screen).
const (
	otherScreen = "\x1b[?1049h\x1b[?25l"
	firstScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// open takes the screen; what is returned gives it back as it was.
func (s *screen) open() (restore func(), err error) {
	keys, err := s.readKeys()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(s.out, otherScreen); err != nil {
		keys()
		return nil, err
	}
	return func() {
		_, _ = io.WriteString(s.out, firstScreen)
		keys()
	}, nil
}

// show replaces what is seen.
func (s *screen) show(text string) error {
	_, err := io.WriteString(s.out, goHome+strings.ReplaceAll(text, "\n", clearLine+"\r\n")+clearBelow)
	return err
}
