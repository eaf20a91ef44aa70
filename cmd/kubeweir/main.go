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

	"github.com/spf13/cobra"
)

// Exit codes of the program.
const (
	exitOK    = 0
	exitError = 1 // it could not do what it was asked
	exitUsage = 2 // it was asked wrongly
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := command
	if other := standIn(os.Args[0]); other != nil {
		run = other
	}
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usageErrorf is fmt.Errorf for a usageError.
func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage wraps a non-nil error in a usageError.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// errReported is a usage error that the command has already reported in full.
var errReported = usageError{errors.New("reported")}

// command runs the program and returns its exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(append([]string{}, args...)) // never nil, which would be os.Args
	var helpErr error                         // cobra calls the help without asking for an error
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { helpErr = help(c) })
	err := errors.Join(root.ExecuteContext(ctx), helpErr)
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(stderr, "kubeweir: %v\n", err)
	}
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitError
}
