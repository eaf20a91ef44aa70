package app

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"time"
)

// processorTime is what the process has used up to now, if that is known.
func processorTime() (time.Duration, bool) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}

// releaseProgram unmaps the pages of the program file. They stay in the page cache.
//
// A mapping with pages of the process's own is left alone: what the loader has
// written and then protected (RELRO: the head of the table that calls into libc go
// through) is read-only, too, and would be as in the file again.
func releaseProgram() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	var from, to uintptr
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		name, amount, attribute := strings.Cut(lines.Text(), ":")
		switch {
		case attribute && name == "Anonymous" && strings.TrimSpace(amount) == "0 kB" && to > from:
			// An error leaves the pages as they are.
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		case len(strings.Fields(lines.Text())) >= 5 && !strings.HasSuffix(strings.Fields(lines.Text())[0], ":"):
			from, to, _ = programPages(lines.Text(), self)
		}
	}
}
