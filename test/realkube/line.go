package realkube

import (
	"context"
	"os/exec"
	"syscall"
)

// A Line is a command line that somebody has typed and that runs on.
type Line struct{ proc *process }

// StartLine types a command line in bash, in an environment. What it prints is appended to logFile. Kill ends it.
func StartLine(line, logFile string, env []string) (*Line, error) {
	cmd := exec.Command("bash", "-c", line)
	cmd.Env = env
	p, err := startCommand(line, logFile, cmd)
	if err != nil {
		return nil, err
	}
	return &Line{p}, nil
}

// Await returns when what it has printed is as ready says. One that ends before is an error.
func (l *Line) Await(ctx context.Context, ready func(printed string) bool) error {
	return l.proc.await(ctx, func(context.Context) (bool, error) { return ready(l.Log()), nil })
}

// Running tells whether the shell has not ended.
func (l *Line) Running() bool { return l.proc.running() }

// Log is what it has printed.
func (l *Line) Log() string { return string(l.proc.log()) }

// Kill ends the shell with all that it has started, which is in its process group, and returns when the shell is gone.
func (l *Line) Kill() {
	if l.proc.running() { // later the number may be another's
		_ = syscall.Kill(-l.proc.pid(), syscall.SIGKILL)
	}
	<-l.proc.done
}
