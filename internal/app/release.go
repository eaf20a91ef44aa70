package app

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

const (
	// settled is how long after the start nothing of it goes on any more.
	settled = 3 * time.Second
	// idlePeriod is how often is looked whether the process is idle: when it has used
	// less than idleShare of one processor since.
	idlePeriod = 10 * time.Second
	idleShare  = 0.01
	// releases is how often memory is given back while the process stays idle: a collection
	// halves a stack that is too large, and those of connections are two times.
	releases = 3
)

// releaseMemory gives back what is not needed while nobody asks for anything: what
// the garbage collector finds, and the mapped pages of the program itself, which the
// start touches all over. It does so after the start, and then each time that the process
// has become idle, until ctx ends. What is needed again comes back from the page cache;
// collecting costs as much as the heap is large.
func releaseMemory(ctx context.Context) {
	wait, idle, released := settled, true, 0
	for {
		before, known := processorTime()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if after, _ := processorTime(); wait == idlePeriod {
			idle = known && float64(after-before) < idleShare*float64(idlePeriod)
		}
		switch {
		case !idle:
			released = 0
		case released < releases:
			debug.FreeOSMemory()
			releaseProgram()
			released++
		}
		wait = idlePeriod
	}
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
