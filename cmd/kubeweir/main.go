// Command kubeweir serves the Kubernetes API: as a caching gateway in front of a
// cluster, or, with no cluster, by itself.
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

const usage = `kubeweir serves the Kubernetes API.

Usage:
  kubeweir standalone [--data-dir DIR] [flags]   serve an API of its own, no cluster needed
  kubeweir gateway --kubeconfig FILE [flags]     serve a cluster through a cache
  kubeweir version                               print the version

'kubeweir standalone --help' and 'kubeweir gateway --help' list the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// command is the program; it returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	var err error
	switch args[0] {
	case "standalone":
		err = runStandalone(ctx, args[1:], stdout, stderr)
	case "gateway":
		err = runGateway(ctx, args[1:], stdout, stderr)
	case "version", "--version":
		err = printVersion(stdout)
	case "help", "--help", "-h":
		if len(args) > 1 && args[0] == "help" {
			return command(ctx, []string{args[1], "--help"}, stdout, stderr)
		}
		fmt.Fprint(stdout, usage)
	default:
		err = usageError{fmt.Errorf("unknown command %q: use standalone, gateway or version", args[0])}
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
