// Command kubeweir is a caching gateway for the Kubernetes API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// Exit codes of the program.
const (
	exitOK    = 0
	exitError = 1 // it could not do what it was asked
	exitUsage = 2 // it was asked wrongly
)

const usage = `kubeweir is a caching gateway for the Kubernetes API.

Usage:
  kubeweir gateway --kubeconfig FILE [flags]   serve a cluster through a cache
  kubeweir version                             print the version

'kubeweir gateway --help' lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	var err error
	switch args[0] {
	case "gateway":
		err = runGateway(ctx, args[1:], stdout, stderr)
	case "version", "--version":
		err = printVersion(stdout)
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
	default:
		err = usageError{fmt.Errorf("unknown command %q: use gateway or version", args[0])}
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintf(stderr, "kubeweir: %v\n", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitError
}
