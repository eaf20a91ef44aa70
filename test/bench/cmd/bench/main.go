// Command bench is `make bench`: it measures kubeweir beside kube-apiserver and prints a table.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubeweir/kubeweir/test/bench"
)

func main() {
	bench.ServeFloor()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o bench.Options
	flags.Func("row", "measure only the `rows` with these names, separated by commas; may be repeated", func(s string) error {
		o.Rows = append(o.Rows, strings.Split(s, ",")...)
		return nil
	})
	list := flags.Bool("list", false, "list the rows and stop")
	flags.BoolVar(&o.Short, "short", false, "measure little: to see that it works, not how fast anything is")
	flags.IntVar(&o.Pods, "pods", 0, "`number` of pods (default 5000, 1000 with -short)")
	flags.StringVar(&o.Binary, "gateway", "", "`path` of the kubeweir program (default: built from cmd/kubeweir)")
	flags.StringVar(&o.Nginx, "nginx", "", "`path` of nginx (default: the one that is installed, if any)")
	flags.StringVar(&o.Against, "against", "", "`path` of another build of kubeweir to measure in kube-apiserver's place")
	flags.StringVar(&o.Profile, "profile", "", "write profiles of kubeweir's to this `folder`, one a row, instead of measuring")
	out := flags.String("out", filepath.Join(".cache", "bench"), "`folder` for bench.json, bench.svg, bench.txt and README.md")
	add := flags.Bool("add", false, "add the rows to the report that is in the folder of -out, instead of writing one of them alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, r := range bench.Rows() {
			fmt.Fprintf(stdout, "%-23s  %-9s  %s\n", r.Name, cmp.Or(r.Over, bench.HTTP1), r.Title)
		}
		return nil
	}
	var earlier *bench.Report
	if *add {
		var err error
		if earlier, err = read(*out); err != nil {
			return fmt.Errorf("-add: %w", err)
		}
	}
	begin := time.Now()
	o.Progress = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%4.0fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	report, err := bench.Run(ctx, o)
	if report == nil {
		return err
	}
	_, _ = fmt.Fprintln(stdout)
	err = errors.Join(err, report.WriteTable(stdout))
	if earlier != nil {
		earlier.Join(report)
		report = earlier
	}
	return errors.Join(err, save(report, *out))
}

// read reads the report that save has written.
func read(dir string) (*bench.Report, error) {
	text, err := os.ReadFile(filepath.Join(dir, "bench.json"))
	if err != nil {
		return nil, err
	}
	var r bench.Report
	return &r, json.Unmarshal(text, &r)
}

// save writes the report in all its formats.
func save(r *bench.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		"bench.json": r.WriteJSON, "bench.svg": r.WriteSVG, "bench.txt": r.WriteTable, "README.md": r.WriteMarkdown,
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
