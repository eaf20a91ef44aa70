// Command report runs `go test -json`, prints what `go test` would, and says where the time went.
//
//	report [-log FILE] go test ./...   run a command; its results are added to FILE
//	report -summary -log FILE          print the slowest packages and tests of all runs in FILE
//
// Output of tests that pass is not printed. The exit code is that of the command.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// slowest is how many packages and tests the summary names.
const slowest = 10

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
	// ImportPath is set, instead of Package, for the output of a build.
	ImportPath string
}

// result is a package, or a test of one, that has ended.
type result struct {
	Package, Test string
	Seconds       float64
}

func main() {
	log := flag.String("log", "", "file of the results, a line each")
	summary := flag.Bool("summary", false, "print the slowest packages and tests in the file")
	flag.Parse()
	if *summary {
		if err := summarize(os.Stdout, *log); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
		return
	}
	code, err := run(os.Stdout, *log, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	os.Exit(code)
}

// run runs a `go test` command and adds its results to the log.
func run(out io.Writer, log string, args []string) (code int, err error) {
	if len(args) < 2 || args[1] != "test" {
		return 2, errors.New("usage: report [-log FILE] go test [flags] [packages]")
	}
	cmd := exec.Command(args[0], append([]string{"test", "-json"}, args[2:]...)...) //nolint:gosec // the caller's command
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	began := time.Now()
	results, readErr := show(out, stdout)
	err = cmd.Wait()
	fmt.Fprintf(out, "%d packages in %s\n", countPackages(results), time.Since(began).Round(time.Second))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), errors.Join(readErr, appendResults(log, results))
	}
	if err := errors.Join(err, readErr, appendResults(log, results)); err != nil {
		return 1, err
	}
	return 0, nil
}

// show prints the output of packages and of failed tests, and returns what has ended.
func show(out io.Writer, in io.Reader) (results []result, err error) {
	held := make(map[[2]string][]string) // output of tests that have not ended
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return results, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return results, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			_, _ = out.Write(line) // output of the go command itself
			continue
		}
		test := [2]string{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			if e.Test != "" {
				held[test] = append(held[test], e.Output)
			} else if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
		case "fail":
			fmt.Fprint(out, strings.Join(held[test], ""))
			fallthrough
		case "pass", "skip":
			delete(held, test)
			results = append(results, result{e.Package, e.Test, e.Elapsed})
			if e.Test == "" { // tests interrupted by a crash or a timeout have no end of their own
				for other, output := range held {
					if other[0] == e.Package {
						if e.Action == "fail" {
							fmt.Fprint(out, strings.Join(output, ""))
						}
						delete(held, other)
					}
				}
			}
		}
	}
}

func countPackages(results []result) (n int) {
	for _, r := range results {
		if r.Test == "" {
			n++
		}
	}
	return n
}

func appendResults(log string, results []result) (err error) {
	if log == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, r := range results {
		err = errors.Join(err, enc.Encode(r))
	}
	return errors.Join(err, f.Close())
}

// summarize prints the slowest packages and tests of a log.
func summarize(out io.Writer, log string) error {
	f, err := os.Open(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no test has ended
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var packages, tests []result
	for dec := json.NewDecoder(f); ; {
		var r result
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", log, err)
		}
		switch {
		case r.Test == "":
			packages = append(packages, r)
		case !strings.Contains(r.Test, "/"): // a subtest counts with its test
			tests = append(tests, r)
		}
	}
	for _, list := range []struct {
		name    string
		results []result
	}{{"packages", packages}, {"tests", tests}} {
		slices.SortFunc(list.results, func(a, b result) int { return cmp.Compare(b.Seconds, a.Seconds) })
		fmt.Fprintf(out, "\nThe slowest %s:\n", list.name)
		for _, r := range list.results[:min(slowest, len(list.results))] {
			fmt.Fprintf(out, "%7.1f s  %s\n", r.Seconds, strings.TrimSpace(strings.TrimPrefix(r.Package, "github.com/kubeweir/kubeweir/")+" "+r.Test))
		}
	}
	return nil
}
