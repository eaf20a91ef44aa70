package serve

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// settled is how long after the start nothing of it goes on any more.
const settled = 3 * time.Second

// releaseStart gives back the memory that only the start needed: what the garbage
// collector finds, and the pages of the program itself, which it touched all over.
// What is needed again comes back from the page cache.
func releaseStart(ctx context.Context) {
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return
	}
	debug.FreeOSMemory()
	releaseProgram()
}

// programPages reads one line of /proc/self/maps; ok is true for what the program
// only reads or executes of its own file.
func programPages(line, program string) (from, to uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != program || fields[1] != "r-xp" && fields[1] != "r--p" {
		return 0, 0, false
	}
	return parseRange(fields[0])
}

// parseRange reads "from-to" in hexadecimal.
func parseRange(text string) (from, to uintptr, ok bool) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, false
	}
	a, err := strconv.ParseUint(first, 16, strconv.IntSize)
	if err != nil {
		return 0, 0, false
	}
	b, err := strconv.ParseUint(last, 16, strconv.IntSize)
	if err != nil || b < a {
		return 0, 0, false
	}
	return uintptr(a), uintptr(b), true
}
