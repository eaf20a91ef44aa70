package main

import (
	"context"

	"golang.org/x/sys/windows"
)

// size is that of the console, 0 of what is none.
func (s *screen) size() (width, height int) {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(s.file.Fd()), &info) != nil {
		return 0, 0
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1
}

// readKeys has the console obey what it is told; keys are left to it, and Ctrl-C ends.
func (s *screen) readKeys() (restore func(), err error) {
	out := windows.Handle(s.file.Fd())
	var before uint32
	if err := windows.GetConsoleMode(out, &before); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(out, before|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(out, before) }, nil
}

// waitForKey returns when ctx has ended.
func (s *screen) waitForKey(ctx context.Context, _ string) { <-ctx.Done() }
