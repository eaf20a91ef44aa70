package browser

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// memoryOf returns the memory of a process and its descendants, with shared memory counted once
// (Pss).
func memoryOf(t *testing.T, pid int) int64 {
	t.Helper()
	var sum int64
	if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup")); err == nil {
		for line := range bytes.Lines(b) {
			if f := strings.Fields(string(line)); len(f) > 1 && f[0] == "Pss:" {
				kib, err := strconv.ParseInt(f[1], 10, 64)
				must(t, err)
				sum += kib << 10
			}
		}
	}
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	must(t, err)
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(b)) {
			id, err := strconv.Atoi(child)
			must(t, err)
			sum += memoryOf(t, id)
		}
	}
	return sum
}
