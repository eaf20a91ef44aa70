package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// outcome is what runs of a test program cost, and its tests' results.
type outcome struct {
	runs      int
	time, cpu time.Duration   // sums; cpu includes the tests themselves
	memory    int64           // bytes, the servers', at its highest
	tests     map[string]bool // passed in each run, by name
}

func (o *outcome) add(run outcome) {
	o.runs++
	o.time += run.time
	o.cpu += run.cpu
	o.memory = max(o.memory, run.memory)
	if o.tests == nil {
		o.tests = run.tests
		return
	}
	for name, passed := range run.tests {
		before, known := o.tests[name]
		o.tests[name] = passed && (before || !known)
	}
}

// compare returns the columns of the table for a and b.
func compare(a, b outcome) string {
	var different []string
	names := maps.Clone(a.tests)
	maps.Copy(names, b.tests)
	passed := [2]int{}
	for name := range names {
		if a.tests[name] {
			passed[0]++
		}
		if b.tests[name] {
			passed[1]++
		}
		if a.tests[name] != b.tests[name] {
			different = append(different, name)
		}
	}
	slices.Sort(different)
	results := fmt.Sprintf("%d and %d of %d", passed[0], passed[1], len(names))
	if len(different) > 0 {
		results += "; different: " + strings.Join(different, "; ")
	}
	seconds := func(o outcome, d time.Duration) float64 { return d.Seconds() / float64(o.runs) }
	return fmt.Sprintf("%s | %.1f, %.1f s | %.1f, %.1f s | %d, %d MB", results,
		seconds(a, a.time), seconds(b, b.time), seconds(a, a.cpu), seconds(b, b.cpu), a.memory>>20, b.memory>>20)
}

// testLine is what a Go test prints at its end.
var testLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL): (\S+)`)

// results returns the results of the tests and, in a Ginkgo suite, of its specs.
func (p *program) results(log, report string) (map[string]bool, error) {
	tests := map[string]bool{}
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	for _, m := range testLine.FindAllStringSubmatch(string(text), -1) {
		tests[m[2]] = m[1] == "PASS"
	}
	if !p.ginkgo {
		return tests, nil
	}
	if text, err = os.ReadFile(report); err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", report, err)
	}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType == "It" && spec.State != "skipped" && spec.State != "pending" {
				tests[strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")] = spec.State == "passed"
			}
		}
	}
	return tests, os.Remove(report)
}

// peakMemory samples the memory of a process's children until stop is closed.
func peakMemory(pid int, stop <-chan struct{}) (peak int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		peak = max(peak, childrenMemory(pid))
		select {
		case <-stop:
			return peak
		case <-tick.C:
		}
	}
}

// statLine finds the parent in /proc/PID/stat. The program's name before it may contain anything.
var statLine = regexp.MustCompile(`\) \S (\d+) [^)]*$`)

// childrenMemory returns the memory of a process's children in bytes. Pages that several processes
// share count once.
func childrenMemory(pid int) (sum int64) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file) // processes end
		if m := statLine.FindSubmatch(stat); m == nil || string(m[1]) != strconv.Itoa(pid) {
			continue
		}
		rollup, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "smaps_rollup"))
		if m := pssLine.FindSubmatch(rollup); m != nil {
			kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`)
