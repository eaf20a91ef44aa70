package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on Linux.
const clockTick = 10 * time.Millisecond

// cpuTime returns the processor time that processes have used so far, in user mode and in the
// kernel.
func cpuTime(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		t, err := parseStat(stat)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += t
	}
	return sum, nil
}

// parseStat adds utime and stime, fields 14 and 15. It counts fields from the end of field 2,
// because that is the program's name in parentheses and may contain anything.
func parseStat(stat []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("too short: %q", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// residentMemory returns a process's current and peak resident memory in bytes.
func residentMemory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	return statusBytes(status, "VmRSS:"), statusBytes(status, "VmHWM:"), nil
}

func statusBytes(status []byte, field string) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// quiet waits until the processes are idle, so that their remaining work for the previous slice
// (garbage collection, closing watches) does not count in the next one. It gives up after a while,
// because a process may stay busy.
func (m *measurer) quiet(ctx context.Context, pids ...int) error {
	const (
		rest  = 20 * time.Millisecond
		tries = 80
	)
	if m.effort.quiet == 0 {
		return ctx.Err()
	}
	last, err := cpuTime(pids...)
	if err != nil {
		return err
	}
	for range tries {
		if err := sleep(ctx, m.effort.quiet); err != nil {
			return err
		}
		now, err := cpuTime(pids...)
		if err != nil {
			return err
		}
		if now-last < rest {
			return nil
		}
		last = now
	}
	return nil
}

// sleep returns early, with ctx's error, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
