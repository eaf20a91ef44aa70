package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

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
	last, err := realkube.CPUTime(pids...)
	if err != nil {
		return err
	}
	for range tries {
		if err := sleep(ctx, m.effort.quiet); err != nil {
			return err
		}
		now, err := realkube.CPUTime(pids...)
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
