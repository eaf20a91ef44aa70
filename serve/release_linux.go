package serve

import (
	"bufio"
	"os"
	"syscall"
)

// releaseProgram unmaps the pages of the program file. They stay in the page cache.
func releaseProgram() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if from, to, ok := programPages(lines.Text(), self); ok {
			// An error leaves the pages as they are.
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		}
	}
}
