package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
)

// releaseMemory returns the garbage of the start to the system, and unmaps the pages of the program
// file, nearly all of which the start touches. They stay in the page cache. Mappings with private
// pages, such as RELRO, are skipped: they would revert to the contents of the file.
func releaseMemory() {
	debug.FreeOSMemory()
	self, _ := os.Executable()
	smaps, _ := os.ReadFile("/proc/self/smaps")
	var from, to uintptr
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case strings.HasSuffix(fields[0], ":"):
			if fields[0] == "Anonymous:" && fields[1] == "0" && to > from {
				// An error leaves the pages as they are.
				_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
			}
		case fields[len(fields)-1] == self && (fields[1] == "r-xp" || fields[1] == "r--p"):
			_, _ = fmt.Sscanf(fields[0], "%x-%x", &from, &to)
		default:
			from, to = 0, 0
		}
	}
}
