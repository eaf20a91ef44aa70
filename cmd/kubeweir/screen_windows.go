package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableSequences makes a console interpret control sequences.
func enableSequences(out *os.File) (restore func(), err error) {
	console := windows.Handle(out.Fd())
	var before uint32
	if err := windows.GetConsoleMode(console, &before); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(console, before) }, windows.SetConsoleMode(console, before|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
}
