package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is a terminal that is redrawn repeatedly.
type screen struct{ file *os.File }

// openScreen returns the terminal behind out, or nil if out is not a terminal.
func openScreen(out io.Writer) *screen {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &screen{file}
	}
	return nil
}

func (s *screen) size() (width, height int) {
	width, height, _ = term.GetSize(int(s.file.Fd()))
	return width, height
}

// Control sequences (ECMA-48, and the alternate screen of xterm).
const (
	alternateScreen = "\x1b[?1049h\x1b[?25l"
	normalScreen    = "\x1b[?25h\x1b[?1049l"
	goHome          = "\x1b[H"
	clearLine       = "\x1b[K"
	clearBelow      = "\x1b[J"
)

// open switches to the alternate screen, and reads keys as they are pressed. restore undoes both.
func (s *screen) open() (restore func(), err error) {
	output, err := enableSequences(s.file)
	if err != nil {
		return nil, err
	}
	in := int(os.Stdin.Fd())
	keys, rawErr := term.MakeRaw(in) // fails if standard input is not a terminal: then there are no keys
	restore = func() {
		_, _ = io.WriteString(s.file, normalScreen)
		if rawErr == nil {
			_ = term.Restore(in, keys)
		}
		output()
	}
	if _, err := io.WriteString(s.file, alternateScreen); err != nil {
		restore()
		return nil, err
	}
	return restore, nil
}

// waitForKey returns when one of keys was pressed, or never if there are no keys.
func (s *screen) waitForKey(keys string) {
	var key [16]byte
	for {
		n, err := os.Stdin.Read(key[:])
		if err != nil {
			select {}
		}
		if strings.ContainsAny(string(key[:n]), keys) {
			return
		}
	}
}

// show replaces the contents.
func (s *screen) show(text string) error {
	_, err := io.WriteString(s.file, goHome+strings.ReplaceAll(text, "\n", clearLine+"\r\n")+clearBelow)
	return err
}
